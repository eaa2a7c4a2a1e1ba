#pragma once

#include "fedhpc/core/options.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {

/// Declares algorithm.weighting: of methods that average what has a format of its own on the wire.
void declare_weighting(OptionSet& options, Weighting& weighting);

}  // namespace fedhpc
