#pragma once

#include <cstdint>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

enum class OptimizerKind { Sgd };

/// The `train.*` keys.
struct TrainOptions {
  std::int64_t batch_size = 20;   ///< samples; 0: all of a client's samples in every step
  std::int64_t local_steps = 0;   ///< batches per round, or 0
  std::int64_t local_epochs = 1;  ///< epochs per round, or 0
  double lr = 0.05;
  OptimizerKind optimizer = OptimizerKind::Sgd;
  std::int64_t block = 0;  ///< clients trained together; 0: measured at the start

  void declare(OptionSet& options);
  /// Keeps the one of local_steps and local_epochs that was set at the higher level. Throws
  /// ConfigError when both were set at one level, or the one that counts is 0.
  void resolve(OptionSet& options);
};

}  // namespace fedhpc
