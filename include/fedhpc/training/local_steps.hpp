#pragma once

#include <cstdint>

#include "fedhpc/data/batches.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/training/options.hpp"

namespace fedhpc {

/// Batch norm cannot train on a batch of one.
SingleBatches single_batches(const Layout& model);

/// Returns a client's local steps in one round by its training samples; 0 where it cannot train.
std::int64_t local_steps(const TrainOptions& options, const Layout& model, std::int64_t samples);

}  // namespace fedhpc
