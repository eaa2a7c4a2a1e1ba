#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

/// Batches of one sample are kept or dropped: batch norm cannot train on them.
enum class SingleBatches { Keep, Drop };

/// Chooses a share of a client's samples. Drawn: the first of a permutation drawn for every pass.
/// Slice: neighbours in stored order, from a place drawn for every round.
enum class Sampled { Drawn, Slice };

/// Determines the batches of one client in one pass of one round.
struct BatchPlan {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::Batches;  ///< or Evaluate
  std::int64_t round = 1;
  std::int64_t client = 0;
  std::int64_t pass = 0;
  std::int64_t samples = 0;          ///< n, the client's training samples
  std::int64_t visited = 0;          ///< of them in each epoch: the permutation's first; 0: all
  Sampled sampled = Sampled::Drawn;  ///< Slice: batches are in stored order
  std::int64_t batch_size = 0;       ///< B; 0: full batch
  SingleBatches singles = SingleBatches::Keep;
  std::int64_t max_batches = 0;  ///< at most so many are asked for; 0: not known
};

/// Goes through the batches of a plan, one after the other (docs/semantics.md, 4). Epoch e visits
/// the permutation of the plan's purpose with counter (pass << 32 | e, client, round). Batch s
/// holds its entries sB to min((s + 1)B, n), or those before the number visited. After the last
/// batch of an epoch comes the first of the next one. A full batch of all samples is 0..n-1 in
/// order, nothing is drawn.
class BatchCursor {
 public:
  explicit BatchCursor(const BatchPlan& plan);

  /// Returns the next batch as positions in the client's training list; valid until the next call.
  /// Costs nothing but at the start of an epoch. That draws n words and orders as many as
  /// max_batches can use. Precondition: an epoch has a batch, and at most max_batches are asked
  /// for.
  std::span<const std::int64_t> next();

  /// Returns 0 when the client has no samples, or only batches of one that are dropped.
  static std::int64_t num_batches_per_epoch(std::int64_t samples, std::int64_t batch_size,
                                            SingleBatches singles);

 private:
  void start_epoch();

  BatchPlan plan_;
  std::int64_t visited_;  // samples in each epoch
  std::int64_t batches_per_epoch_;
  std::int64_t done_ = 0;            // batches given
  std::vector<std::int64_t> order_;  // of the current epoch, as far as needed
};

}  // namespace fedhpc
