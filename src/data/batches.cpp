#include "fedhpc/data/batches.hpp"

#include <algorithm>
#include <numeric>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {

BatchCursor::BatchCursor(const BatchPlan& plan)
    : plan_(plan),
      visited_(plan.visited == 0 ? plan.samples : plan.visited),
      batches_per_epoch_(num_batches_per_epoch(visited_, plan.batch_size, plan.singles)) {
  require(plan.pass >= 0 && plan.client >= 0 && plan.round >= 0 && plan.max_batches >= 0,
          "a batch plan has no negative numbers");
  require(0 <= visited_ && visited_ <= plan.samples, "an epoch visits no sample twice");
}

std::int64_t BatchCursor::num_batches_per_epoch(std::int64_t samples, std::int64_t batch_size,
                                                SingleBatches singles) {
  require(samples >= 0 && batch_size >= 0, "samples and batch size are not negative");
  if (samples == 0) return 0;
  const std::int64_t size = batch_size == 0 ? samples : batch_size;
  const std::int64_t all = (samples + size - 1) / size;
  if (singles == SingleBatches::Keep) return all;
  if (size == 1) return 0;
  return samples % size == 1 ? all - 1 : all;
}

std::span<const std::int64_t> BatchCursor::next() {
  require(batches_per_epoch_ > 0, "a client without batches is not asked for one");
  require(plan_.max_batches == 0 || done_ < plan_.max_batches,
          "no more batches are asked for than were planned");
  const std::int64_t step = done_ % batches_per_epoch_;
  if (step == 0) start_epoch();
  ++done_;
  if (plan_.batch_size == 0) return order_;
  const std::int64_t begin = step * plan_.batch_size;
  const std::int64_t end = std::min(begin + plan_.batch_size, visited_);
  return std::span<const std::int64_t>(order_).subspan(static_cast<std::size_t>(begin),
                                                       static_cast<std::size_t>(end - begin));
}

void BatchCursor::start_epoch() {
  if (plan_.batch_size == 0 && visited_ == plan_.samples) {
    if (!order_.empty()) return;
    order_.resize(static_cast<std::size_t>(plan_.samples));
    std::iota(order_.begin(), order_.end(), 0);
    return;
  }
  DrawKey key{.seed = plan_.seed,
              .purpose = plan_.purpose,
              .pass = static_cast<std::uint64_t>(plan_.pass),
              .epoch = static_cast<std::uint64_t>(done_ / batches_per_epoch_),
              .client = static_cast<std::uint64_t>(plan_.client),
              .round = static_cast<std::uint64_t>(plan_.round)};
  if (plan_.sampled == Sampled::Slice) {
    key.pass = 1;
    key.epoch = 0;
    order_.resize(static_cast<std::size_t>(visited_));
    std::iota(order_.begin(), order_.end(), Draws(key).below(plan_.samples - visited_ + 1));
    return;
  }
  const std::int64_t left = plan_.max_batches - done_;
  const bool all = plan_.max_batches == 0 || left >= batches_per_epoch_;
  const std::int64_t length = all ? visited_ : std::min(left * plan_.batch_size, visited_);
  order_ = permutation_prefix(key, plan_.samples, length);
}

}  // namespace fedhpc
