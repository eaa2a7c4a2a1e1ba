#pragma once

#include <cstdint>
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

/// Scores models on test samples in chunks of bounded memory.
class Evaluator {
 public:
  Evaluator(const Model& model, at::ScalarType type);

  /// Scores one model `row` [1, P] on the test samples of each client of the shard: one Score per
  /// client, in order of id.
  std::vector<Score> each_client(const Rows& row, const Shard& shard);

 private:
  const Model& model_;
  Activations activations_;
  Tensor labels_;  // [B] int64 of a chunk
};

}  // namespace fedhpc
