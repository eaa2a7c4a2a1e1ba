#include "fedhpc/training/evaluator.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/loss.hpp"

namespace fedhpc {

namespace {

Score sum_of(const double* correct, const double* loss, std::int64_t count) {
  return {.samples = static_cast<double>(count),
          .correct = std::accumulate(correct, correct + count, 0.0),
          .loss = std::accumulate(loss, loss + count, 0.0)};
}

}  // namespace

Score score_of(const Tensor& logits, const Tensor& labels) {
  const std::int64_t count = logits.size(0);
  std::vector<double> correct(static_cast<std::size_t>(count));
  std::vector<double> loss(correct.size());
  score_samples(logits, labels.const_data_ptr<std::int64_t>(), correct.data(), loss.data());
  return sum_of(correct.data(), loss.data(), count);
}

namespace {

/// Scores of clients whose samples lie one after the other in `scores` [2, samples].
std::vector<Score> sums_of(const Tensor& scores, const Shard& shard,
                           std::span<const std::int64_t> clients) {
  std::vector<Score> sums;
  const auto* correct = scores.const_data_ptr<double>();
  const double* loss = correct + scores.size(1);
  for (const std::int64_t client : clients) {
    const std::int64_t count = shard.test_count(client);
    sums.push_back(sum_of(correct, loss, count));
    correct += count;
    loss += count;
  }
  return sums;
}

}  // namespace

std::vector<Evaluator::Stretch> Evaluator::stretches_of(
    const Shard& shard, std::span<const std::int64_t> clients) const {
  std::vector<Stretch> stretches;
  for (const std::int64_t client : clients) {
    const std::int64_t begin = shard.test_begin(client);
    const std::int64_t end = begin + shard.test_count(client);
    if (context_.summation == Summation::Fast && !stretches.empty() &&
        stretches.back().end == begin) {
      stretches.back().end = end;
    } else {
      stretches.push_back({begin, end});
    }
  }
  return stretches;
}

Evaluator::Evaluator(const Model& model, const Context& context, std::function<void()> on_chunk)
    : model_(model),
      context_(context),
      // 256 samples: activations of the DNNs then stay in a CPU's cache.
      activations_(room_for(1)),
      labels_(at::empty({1, kChunk}, context.options().dtype(at::kLong))),
      on_chunk_(std::move(on_chunk)) {}

Activations Evaluator::room_for(std::int64_t lanes) const {
  return model_.make_activations(lanes, kChunk, context_.options(), Use::Evaluation,
                                 {.summation = context_.summation});
}

void Evaluator::score_chunk(const Rows& row, const Shard& shard, std::int64_t first,
                            std::int64_t length, double* correct, double* loss) {
  const Activations part = length == kChunk ? activations_ : activations_.narrow(0, 1, length);
  shard.gather_test(first, first + length, part.input(), labels_[0]);
  model_.forward(row.values, part);
  score_samples(part.logits().squeeze(0), labels_.const_data_ptr<std::int64_t>(), correct, loss);
  on_chunk_();
}

std::vector<Score> Evaluator::each_client(const Rows& row, const Shard& shard,
                                          std::span<const std::int64_t> clients) {
  require(row.count() == 1, "one model is scored on all clients");
  if (on_device(row.values)) {
    return sums_of(score_on_device(row, shard, stretches_of(shard, clients)), shard, clients);
  }
  std::vector<double> correct;
  std::vector<double> loss;
  for (const Stretch& stretch : stretches_of(shard, clients)) {
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

std::vector<Score> Evaluator::each_own(const Rows& rows, const Shard& shard,
                                       std::span<const std::int64_t> clients) {
  require(rows.count() == static_cast<std::int64_t>(clients.size()), "one model per client");
  if (on_device(rows.values)) {
    std::vector<Stretch> own;
    for (const std::int64_t client : clients) {
      const std::int64_t begin = shard.test_begin(client);
      own.push_back({begin, begin + shard.test_count(client)});
    }
    return sums_of(score_on_device(rows, shard, own), shard, clients);
  }
  std::vector<Score> scores;
  for (std::size_t c = 0; c < clients.size(); ++c) {
    const Rows row{rows.values.narrow(0, static_cast<std::int64_t>(c), 1), rows.layout};
    scores.push_back(each_client(row, shard, clients.subspan(c, 1)).front());
  }
  return scores;
}

Embedded Evaluator::embed(
    const Rows& row, std::int64_t count,
    const std::function<void(std::int64_t, const Tensor&, const Tensor&)>& gather) {
  require(row.count() == 1, "one model embeds samples");
  const Embedded all{at::empty({count, model_.embedding_size()}, at::kDouble),
                     at::empty({count}, at::kLong)};
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const std::int64_t length = std::min(kChunk, count - first);
    const Activations part = activations_.narrow(0, 1, length);
    const Tensor host = on_device(row.values) ? at::empty(part.input().sizes(),
                                                          part.input().options().device(at::kCPU))
                                              : part.input();
    gather(first, host, all.labels.narrow(0, first, length));
    if (on_device(row.values)) part.input().copy_(host);
    model_.forward(row.values, part);
    all.values.narrow(0, first, length).copy_(on_host(model_.embedding(part)).squeeze(0));
    on_chunk_();
  }
  return all;
}

Embedded Evaluator::embed_training(const Rows& row, const Shard& shard, std::int64_t client) {
  const std::optional<Shard> made =
      shard.on_demand() ? std::optional(shard.in_hand({client})) : std::nullopt;
  const Shard& samples = made ? *made : shard;
  return embed(row, samples.train_count(client),
               [&](std::int64_t first, const Tensor& features, const Tensor& labels) {
                 std::vector<std::int64_t> positions(static_cast<std::size_t>(features.size(1)));
                 std::iota(positions.begin(), positions.end(), first);
                 samples.gather_train(client, positions, 0, features, labels.unsqueeze(0));
               });
}

Embedded Evaluator::embed_test(const Rows& row, const Shard& shard, std::int64_t client) {
  const std::int64_t begin = shard.test_begin(client);
  return embed(row, shard.test_count(client),
               [&](std::int64_t first, const Tensor& features, const Tensor& labels) {
                 shard.gather_test(begin + first, begin + first + features.size(1), features,
                                   labels);
               });
}

std::vector<Score> Evaluator::each_chunk(const Rows& row, const Shard& shard) {
  require(row.count() == 1, "one model is scored on all samples");
  std::vector<Score> scores;
  if (on_device(row.values)) {
    if (shard.test_rows() == 0) return scores;
    const Tensor of_samples = score_on_device(row, shard, {{0, shard.test_rows()}});
    const auto* correct = of_samples.const_data_ptr<double>();
    for (std::int64_t first = 0; first < shard.test_rows(); first += kChunk) {
      const std::int64_t length = std::min(kChunk, shard.test_rows() - first);
      scores.push_back(sum_of(correct + first, correct + of_samples.size(1) + first, length));
    }
    return scores;
  }
  std::vector<double> correct(kChunk);
  std::vector<double> loss(kChunk);
  for (std::int64_t first = 0; first < shard.test_rows(); first += kChunk) {
    const std::int64_t length = std::min(kChunk, shard.test_rows() - first);
    score_chunk(row, shard, first, length, correct.data(), loss.data());
    scores.push_back(sum_of(correct.data(), loss.data(), length));
  }
  return scores;
}

}  // namespace fedhpc
