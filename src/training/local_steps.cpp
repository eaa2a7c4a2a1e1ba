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
  const std::int64_t in_epoch =
      BatchCursor::num_batches_per_epoch(samples, options.batch_size, SingleBatches::Keep);
  if (in_epoch == 0) return 0;
  // The last batch of an epoch has what is left: those of an epoch begun are whole ones.
  return checked_sum(kWhat, {checked_product(kWhat, {options.local_steps / in_epoch, samples}),
                             options.local_steps % in_epoch * options.batch_size});
}

}  // namespace fedhpc
