#pragma once

#include <cstdint>
#include <string>

#include "fedhpc/data/batches.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/training/options.hpp"

namespace fedhpc {

/// Batch norm cannot train on a batch of one.
SingleBatches single_batches(const Layout& model);

/// Returns a client's local steps in one round by its training samples; 0 where it cannot train.
std::int64_t local_steps(const TrainOptions& options, const Layout& model, std::int64_t samples);

/// Returns the epochs of these steps; one that ends early counts.
std::int64_t epochs_of_steps(const TrainOptions& options, const Layout& model,
                             std::int64_t samples);

/// Throws ConfigError where a cosine is at rate 0 before `units` of train.lr_unit, `of` whom, end.
void refuse_early_end(const TrainOptions& train, const OptionSet& options, std::int64_t units,
                      const std::string& of = "");

/// Returns the samples that a client's local steps of one round go through: the last batch of an epoch
/// has what is left. A batch of one counts, whatever the model does with it.
std::int64_t sample_visits(const TrainOptions& options, std::int64_t samples);

}  // namespace fedhpc
