#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/model.hpp"

namespace fedhpc {

/// How one model does on one client's (or the server's) test samples.
struct Score {
  double samples = 0;
  double correct = 0;
  double loss = 0;  ///< summed over the samples
};

/// Whether a sample's score may depend, in its last bits, on which other samples are scored beside
/// it (a product's kernel may round its last rows differently).
enum class Chunks {
  AcrossClients,  ///< fastest
  PerClient       ///< a client's scores are the same whatever clients a rank hosts
};

/// Scores models on test samples in chunks of bounded memory.
class Evaluator {
 public:
  static constexpr std::int64_t kChunk = 256;  ///< samples

  /// `on_chunk` is called after every chunk, in the course of long work.
  Evaluator(
      const Model& model, at::ScalarType type, Chunks chunks,
      std::function<void()> on_chunk = [] {});

  /// Scores one model `row` [1, P] on the test samples of some clients of the shard (ascending
  /// ids): one Score per client.
  std::vector<Score> each_client(const Rows& row, const Shard& shard,
                                 std::span<const std::int64_t> clients);

  /// Scores one model on all test samples of the shard, in chunks of kChunk: one Score per chunk.
  std::vector<Score> each_chunk(const Rows& row, const Shard& shard);

 private:
  /// Scores stacked test samples first to first + length - 1.
  void score_chunk(const Rows& row, const Shard& shard, std::int64_t first, std::int64_t length,
                   double* correct, double* loss);

  const Model& model_;
  Chunks chunks_;
  Activations activations_;
  Tensor labels_;  // [B] int64 of a chunk
  std::function<void()> on_chunk_;
};

}  // namespace fedhpc
