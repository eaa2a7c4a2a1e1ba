#include "fedhpc/training/local_steps.hpp"

#include "fedhpc/core/checked.hpp"

namespace fedhpc {

SingleBatches single_batches(const Layout& model) {
  return model.count(Tag::Buffer) > 0 ? SingleBatches::Drop : SingleBatches::Keep;
}

std::int64_t local_steps(const TrainOptions& options, const Layout& model, std::int64_t samples) {
  const std::int64_t in_epoch =
      BatchCursor::num_batches_per_epoch(samples, options.batch_size, single_batches(model));
  if (in_epoch == 0) return 0;
  return options.local_steps > 0
             ? options.local_steps
             : checked_product("the local steps of a client", {options.local_epochs, in_epoch});
}

}  // namespace fedhpc
