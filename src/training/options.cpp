#include "fedhpc/training/options.hpp"

#include <stdexcept>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

void TrainOptions::declare(OptionSet& options) {
  options.add("train.batch_size", batch_size, at_least<std::int64_t>(0),
              "samples per local step; 0: every step uses all samples of the client");
  options.add("train.local_steps", local_steps, at_least<std::int64_t>(0),
              "batches a client trains on per round (set this or train.local_epochs)");
  options.add("train.local_epochs", local_epochs, at_least<std::int64_t>(0),
              "epochs a client trains per round (set this or train.local_steps)");
  options.add("train.lr", lr, at_least(0.0), "learning rate of local SGD");
  options.add("train.optimizer", optimizer, Names<OptimizerKind>{{"sgd", OptimizerKind::Sgd}},
              "row optimizer of local training");
  options.add_or_auto("train.block", block,
                      "clients trained together in one block; auto: measured at the start (never "
                      "changes a result beyond rounding)");
}

void TrainOptions::resolve(OptionSet& options) {
  const Origin& steps = options.origin("train.local_steps");
  const Origin& epochs = options.origin("train.local_epochs");
  if (local_steps > 0 && local_epochs > 0) {
    if (steps.level == epochs.level) {
      throw ConfigError(concat(steps.place, ": train.local_steps = ", local_steps,
                               " and train.local_epochs = ", local_epochs,
                               " cannot both count; keep one of them above 0"));
    }
    (steps.level > epochs.level ? local_epochs : local_steps) = 0;
  }
  if (local_steps == 0 && local_epochs == 0) {
    const Origin& last = epochs.level > steps.level ? epochs : steps;
    throw ConfigError(concat(last.level == Level::Default ? "configuration" : last.place,
                             ": one of train.local_steps and train.local_epochs must be above 0"));
  }
}

}  // namespace fedhpc
