#include "fedhpc/training/evaluator.hpp"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/loss.hpp"

namespace fedhpc {

namespace {

/// Stacked test samples begin to end - 1.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The clients' samples as stretches: neighbours in the stack joined, or one per client.
std::vector<Stretch> stretches_of(const Shard& shard, std::span<const std::int64_t> clients,
                                  Chunks chunks) {
  std::vector<Stretch> stretches;
  for (const std::int64_t client : clients) {
    const std::int64_t begin = shard.test_begin(client);
    const std::int64_t end = begin + shard.test_count(client);
    if (chunks == Chunks::AcrossClients && !stretches.empty() && stretches.back().end == begin) {
      stretches.back().end = end;
    } else {
      stretches.push_back({begin, end});
    }
  }
  return stretches;
}

Score sum_of(const double* correct, const double* loss, std::int64_t count) {
  return {.samples = static_cast<double>(count),
          .correct = std::accumulate(correct, correct + count, 0.0),
          .loss = std::accumulate(loss, loss + count, 0.0)};
}

}  // namespace

Evaluator::Evaluator(const Model& model, at::ScalarType type, Chunks chunks,
                     std::function<void()> on_chunk)
    : model_(model),
      chunks_(chunks),
      // 256 samples: activations of the DNNs then stay in a CPU's cache.
      activations_(model.make_activations(1, kChunk, type, Use::Evaluation)),
      labels_(at::empty({kChunk}, at::kLong)),
      on_chunk_(std::move(on_chunk)) {}

void Evaluator::score_chunk(const Rows& row, const Shard& shard, std::int64_t first,
                            std::int64_t length, double* correct, double* loss) {
  const Activations part = length == kChunk ? activations_ : activations_.narrow(0, 1, length);
  shard.gather_test(first, first + length, part.input(), labels_);
  model_.forward(row.values, part);
  score_samples(part.logits().squeeze(0), labels_.const_data_ptr<std::int64_t>(), correct, loss);
  on_chunk_();
}

std::vector<Score> Evaluator::each_client(const Rows& row, const Shard& shard,
                                          std::span<const std::int64_t> clients) {
  require(row.count() == 1, "one model is scored on all clients");
  std::vector<double> correct;
  std::vector<double> loss;
  for (const Stretch& stretch : stretches_of(shard, clients, chunks_)) {
    for (std::int64_t first = stretch.begin; first < stretch.end; first += kChunk) {
      const std::int64_t length = std::min(kChunk, stretch.end - first);
      const std::size_t done = correct.size();
      correct.resize(done + static_cast<std::size_t>(length));
      loss.resize(correct.size());
      score_chunk(row, shard, first, length, correct.data() + done, loss.data() + done);
    }
  }
  std::vector<Score> scores;
  std::int64_t done = 0;
  for (const std::int64_t client : clients) {
    const std::int64_t count = shard.test_count(client);
    scores.push_back(sum_of(correct.data() + done, loss.data() + done, count));
    done += count;
  }
  return scores;
}

std::vector<Score> Evaluator::each_chunk(const Rows& row, const Shard& shard) {
  require(row.count() == 1, "one model is scored on all samples");
  std::vector<double> correct(kChunk);
  std::vector<double> loss(kChunk);
  std::vector<Score> scores;
  for (std::int64_t first = 0; first < shard.test_rows(); first += kChunk) {
    const std::int64_t length = std::min(kChunk, shard.test_rows() - first);
    score_chunk(row, shard, first, length, correct.data(), loss.data());
    scores.push_back(sum_of(correct.data(), loss.data(), length));
  }
  return scores;
}

}  // namespace fedhpc
