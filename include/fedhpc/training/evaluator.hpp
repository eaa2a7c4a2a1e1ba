#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/loss.hpp"

namespace fedhpc {

/// The score of one model on one client's (or the server's) test samples.
struct Score {
  double samples = 0;    ///< or, of sequences, places that count
  double correct = 0;    ///< of them; 0 of numbers
  double loss = 0;       ///< summed over them
  double hits = 0;       ///< true positives, of binary cross entropy
  double positives = 0;  ///< predicted plus true ones
};

/// Embeddings that the head sees of some samples, and their labels; in host memory.
struct Embedded {
  Tensor values;  // [n, E] float64
  Tensor labels;  // [n] int64
};

/// Scores logits [n, K] on these labels [n].
Score score_of(const Tensor& logits, const Tensor& labels);
/// All of these together.
Score sum_of(std::span<const Score> scores);

/// Scores models on test samples in chunks of bounded memory. Chunks hold samples of several
/// clients, unless summation is reproducible: a product's kernel may round its last rows
/// differently.
class Evaluator {
 public:
  static constexpr std::int64_t kChunk = 256;  ///< samples

  /// `on_chunk` is called after every chunk, in the course of long work. `loss` fits the model and
  /// the shards that it is scored on.
  Evaluator(
      const Model& model, const Context& context, std::function<void()> on_chunk = [] {},
      const Loss& loss = {});

  const Loss& loss() const { return loss_; }

  /// Scores one model `row` [1, P] on the test samples of some clients of the shard (ascending
  /// ids): one Score per client.
  std::vector<Score> each_client(const Rows& row, const Shard& shard,
                                 std::span<const std::int64_t> clients);

  /// Scores row c of `rows` [C, P] on the test samples of clients[c]: [C]. A device scores many
  /// clients at a time.
  std::vector<Score> each_own(const Rows& rows, const Shard& shard,
                              std::span<const std::int64_t> clients);

  /// Returns what the head of one model `row` [1, P] sees of a client's training samples without
  /// augmentation, or of its test samples.
  Embedded embed_training(const Rows& row, const Shard& shard, std::int64_t client);
  Embedded embed_test(const Rows& row, const Shard& shard, std::int64_t client);

  /// Scores one model on all test samples of the shard, in chunks of kChunk: one Score per chunk.
  std::vector<Score> each_chunk(const Rows& row, const Shard& shard);

 private:
  Activations room_for(std::int64_t lanes) const;  // of kChunk samples each
  /// The stacked test samples begin to end - 1.
  struct Stretch {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  /// The clients' samples as stretches: neighbours in the stack joined, or one per client.
  std::vector<Stretch> stretches_of(const Shard& shard,
                                    std::span<const std::int64_t> clients) const;
  /// Scores the samples of all stretches in order, [M, samples] float64 in host memory, as
  /// Loss::score has them. Row s of `rows` scores stretch s, or a single row all of them.
  Tensor score_on_device(const Rows& rows, const Shard& shard,
                         const std::vector<Stretch>& stretches);
  /// Returns what the head sees of `count` samples. `gather` puts those from a number on into a
  /// stack [1, B, D] and their labels [B].
  Embedded embed(const Rows& row, std::int64_t count,
                 const std::function<void(std::int64_t first, const Tensor& features,
                                          const Tensor& labels)>& gather);
  /// Scores stacked test samples first to first + length - 1 into columns of the scores [M, n],
  /// from `to` on.
  void score_chunk(const Rows& row, const Shard& shard, std::int64_t first, std::int64_t length,
                   const Tensor& scores, std::int64_t to);
  /// Sees to room for the targets of so many chunks of the shard's samples.
  void reserve_targets(const Shard& shard, std::int64_t lanes);
  /// The score of samples first to first + count - 1 of the scores [M, n].
  Score sum_of(const Tensor& scores, std::int64_t first, std::int64_t count) const;
  /// Scores of clients whose samples lie one after the other in `scores`.
  std::vector<Score> sums_of(const Tensor& scores, const Shard& shard,
                             std::span<const std::int64_t> clients) const;

  const Model& model_;
  Context context_;
  Activations activations_;
  Loss loss_;
  Tensor targets_;  // [lanes, B, T] of chunks, undefined until they are needed
  std::function<void()> on_chunk_;
};

}  // namespace fedhpc
