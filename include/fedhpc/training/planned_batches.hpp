#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/data/augment.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/training/local_step.hpp"

namespace fedhpc {

/// Positions in a client's list of training samples that make one batch, and their crops where
/// images are augmented.
struct Batch {
  std::span<const std::int64_t> positions{};  ///< valid until the client's next batch
  std::vector<Crop> crops{};                  ///< one each, or none
  double rate = 1;                            ///< factor on train.lr
};

/// Appends a client's batch to the runs of a step: to the last run where it continues that one.
void append(std::vector<BatchRun>& runs, std::int64_t row, const Batch& batch);

/// Plans the batches of a block's pass on a device. The host draws where every sample of every step
/// lies and copies it over once, before the first step. The steps count themselves on the device,
/// so that none of them needs anything from the host.
class PlannedBatches {
 public:
  /// Returns the batch of step `step` of the block's client c, which has this id; its steps come in
  /// order. A batch without positions: the client has no such step.
  using Next = std::function<Batch(std::int64_t c, std::int64_t step)>;

  /// Begins a pass of these clients in `steps` steps with batches of up to `batch` samples. Forgets
  /// the plan before and counts from 0.
  void begin(std::span<const std::int64_t> clients, std::int64_t steps, std::int64_t batch,
             at::Device device);
  /// Plans the next draw, counted from 0.
  void plan(const Shard& shard, const Next& next);
  std::int64_t steps() const { return steps_; }
  /// The batches of a step as they lie side by side.
  const std::vector<BatchRun>& runs(std::int64_t draw, std::int64_t step) const {
    return runs_[static_cast<std::size_t>(draw)][static_cast<std::size_t>(step)];
  }
  /// Puts the batches of the current step into the inputs [C, B, D] and the targets. Enqueued.
  void gather(const Shard& shard, std::int64_t draw, const Tensor& inputs,
              const Tensor& targets) const;
  /// Goes on to the next step. Enqueued.
  void advance() const;
  /// The memory of the first draw's plan: the same as long as no larger one is made.
  const Tensor& buffer() const { return buffers_.front(); }

 private:
  std::vector<std::int64_t> clients_;  // ids
  std::int64_t steps_ = 0;
  std::int64_t batch_ = 0;
  at::Device device_ = at::kCPU;
  std::vector<std::vector<std::vector<BatchRun>>> runs_;  // of draw and step
  std::vector<Tensor> buffers_;                           // of the draws, kept for the next pass
  Tensor step_;                                           // [1] int64
};

}  // namespace fedhpc
