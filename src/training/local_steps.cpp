#include "fedhpc/training/local_steps.hpp"

#include <algorithm>

#include "fedhpc/core/checked.hpp"

namespace fedhpc {

SingleBatches single_batches(const Layout& model) {
  return model.needs_pairs() ? SingleBatches::Drop : SingleBatches::Keep;
}

std::int64_t local_steps(const TrainOptions& options, const Layout& model, std::int64_t samples) {
  const std::int64_t in_epoch =
      BatchCursor::num_batches_per_epoch(samples, options.batch_size, single_batches(model));
  if (in_epoch == 0) return 0;
  return options.local_steps > 0
             ? options.local_steps
             : checked_product("the local steps of a client", {options.local_epochs, in_epoch});
}

std::int64_t epochs_of_steps(const TrainOptions& options, const Layout& model,
                             std::int64_t samples) {
  const std::int64_t in_epoch =
      BatchCursor::num_batches_per_epoch(samples, options.batch_size, single_batches(model));
  if (in_epoch == 0) return 0;
  return (local_steps(options, model, samples) + in_epoch - 1) / in_epoch;
}

std::int64_t sample_visits(const TrainOptions& options, std::int64_t samples) {
  constexpr const char* kWhat = "the samples of a client's local steps";
  if (options.local_steps == 0) return checked_product(kWhat, {options.local_epochs, samples});
  if (samples == 0) return 0;
  const std::int64_t batch =
      options.batch_size == 0 ? samples : std::min(options.batch_size, samples);
  const std::int64_t in_epoch = (samples + batch - 1) / batch;
  // The last batch of an epoch has what is left, and so ends a whole number of epochs alone.
  return checked_sum(kWhat, {checked_product(kWhat, {options.local_steps / in_epoch, samples}),
                             options.local_steps % in_epoch * batch});
}

}  // namespace fedhpc
