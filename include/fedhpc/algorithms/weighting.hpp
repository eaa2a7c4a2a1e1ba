#pragma once

#include "fedhpc/core/options.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {

/// Declares algorithm.weighting, for methods whose averaged payloads have a format of their own.
void declare_weighting(OptionSet& options, Weighting& weighting);

}  // namespace fedhpc
