#include "fedhpc/training/evaluator.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/training/loss.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kChunk = 256;  // samples; activations of the DNNs then stay in a CPU's cache

}  // namespace

Evaluator::Evaluator(const Model& model, at::ScalarType type)
    : model_(model),
      activations_(model.make_activations(1, kChunk, type, Use::Evaluation)),
      labels_(at::empty({kChunk}, at::kLong)) {}

std::vector<Score> Evaluator::each_client(const Rows& row, const Shard& shard) {
  require(row.count() == 1, "one model is scored on all clients");
  // Clients' test samples lie one after the other: chunks run over their borders.
  const std::int64_t total = shard.test_rows();
  std::vector<double> correct(static_cast<std::size_t>(total));
  std::vector<double> loss(static_cast<std::size_t>(total));
  for (std::int64_t first = 0; first < total; first += kChunk) {
    const std::int64_t length = std::min(kChunk, total - first);
    const Activations part = length == kChunk ? activations_ : activations_.narrow(0, 1, length);
    shard.gather_test(first, first + length, part.input(), labels_);
    model_.forward(row.values, part);
    score_samples(part.logits().squeeze(0), labels_.const_data_ptr<std::int64_t>(),
                  correct.data() + first, loss.data() + first);
  }
  std::vector<Score> scores;
  for (const std::int64_t client : shard.clients()) {
    Score score;
    const std::int64_t begin = shard.test_begin(client);
    const std::int64_t end = begin + shard.test_count(client);
    for (std::int64_t i = begin; i < end; ++i) {
      score.correct += correct[static_cast<std::size_t>(i)];
      score.loss += loss[static_cast<std::size_t>(i)];
    }
    score.samples = static_cast<double>(end - begin);
    scores.push_back(score);
  }
  return scores;
}

}  // namespace fedhpc
