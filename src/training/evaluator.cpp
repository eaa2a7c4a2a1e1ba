#include "fedhpc/training/evaluator.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/loss.hpp"

namespace fedhpc {

Score score_of(const Tensor& logits, const Tensor& labels) {
  const std::int64_t count = logits.size(0);
  std::vector<double> correct(static_cast<std::size_t>(count));
  std::vector<double> loss(correct.size());
  score_samples(logits, labels.const_data_ptr<std::int64_t>(), correct.data(), loss.data());
  return {.samples = static_cast<double>(count),
          .correct = std::accumulate(correct.begin(), correct.end(), 0.0),
          .loss = std::accumulate(loss.begin(), loss.end(), 0.0)};
}

Score sum_of(std::span<const Score> scores) {
  Score all;
  for (const Score& score : scores) {
    all.samples += score.samples;
    all.correct += score.correct;
    all.loss += score.loss;
    all.hits += score.hits;
    all.positives += score.positives;
  }
  return all;
}

Score Evaluator::sum_of(const Tensor& scores, std::int64_t first, std::int64_t count) const {
  const auto sum = [&](std::int64_t measure) {
    const double* of = scores.const_data_ptr<double>() + measure * scores.size(1) + first;
    return std::accumulate(of, of + count, 0.0);
  };
  Score score{.samples = static_cast<double>(count), .correct = sum(0), .loss = sum(1)};
  if (loss_.of_sequences()) score.samples = sum(2);
  if (loss_.kind() == LossKind::BinaryCrossEntropy) {
    score.hits = sum(2);
    score.positives = sum(3);
  }
  return score;
}

std::vector<Score> Evaluator::sums_of(const Tensor& scores, const Shard& shard,
                                      std::span<const std::int64_t> clients) const {
  std::vector<Score> sums;
  std::int64_t done = 0;
  for (const std::int64_t client : clients) {
    const std::int64_t count = shard.test_count(client);
    sums.push_back(sum_of(scores, done, count));
    done += count;
  }
  return sums;
}

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

Evaluator::Evaluator(const Model& model, const Context& context, std::function<void()> on_chunk,
                     const Loss& loss)
    : model_(model),
      context_(context),
      // 256 samples: activations of the DNNs then stay in a CPU's cache.
      activations_(room_for(1)),
      loss_(loss),
      on_chunk_(std::move(on_chunk)) {}

Activations Evaluator::room_for(std::int64_t lanes) const {
  return model_.make_activations(lanes, kChunk, context_.options(), Use::Evaluation,
                                 {.summation = context_.summation});
}

void Evaluator::reserve_targets(const Shard& shard, std::int64_t lanes) {
  const std::int64_t count = shard.targets().count;
  const at::ScalarType type = shard.target_type();
  const bool fits = targets_.defined() && targets_.size(0) >= lanes && targets_.size(2) == count &&
                    targets_.scalar_type() == type;
  if (!fits) targets_ = at::empty({lanes, kChunk, count}, context_.options().dtype(type));
}

void Evaluator::score_chunk(const Rows& row, const Shard& shard, std::int64_t first,
                            std::int64_t length, const Tensor& scores, std::int64_t to) {
  const Activations part = length == kChunk ? activations_ : activations_.narrow(0, 1, length);
  reserve_targets(shard, 1);
  shard.gather_test(first, first + length, part.input(), targets_[0]);
  model_.forward(row.values, part);
  loss_.score(part.logits().squeeze(0), targets_[0], scores.data_ptr<double>() + to,
              scores.size(1));
  on_chunk_();
}

std::vector<Score> Evaluator::each_client(const Rows& row, const Shard& shard,
                                          std::span<const std::int64_t> clients) {
  require(row.count() == 1, "one model is scored on all clients");
  if (on_device(row.values)) {
    return sums_of(score_on_device(row, shard, stretches_of(shard, clients)), shard, clients);
  }
  const std::vector<Stretch> stretches = stretches_of(shard, clients);
  std::int64_t count = 0;
  for (const Stretch& stretch : stretches) count += stretch.end - stretch.begin;
  const Tensor scores = at::empty({loss_.measures(), count}, at::kDouble);
  std::int64_t done = 0;
  for (const Stretch& stretch : stretches) {
    for (std::int64_t first = stretch.begin; first < stretch.end; first += kChunk) {
      const std::int64_t length = std::min(kChunk, stretch.end - first);
      score_chunk(row, shard, first, length, scores, done);
      done += length;
    }
  }
  return sums_of(scores, shard, clients);
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
    scores.push_back(each_client(row, shard.of(clients[c]), clients.subspan(c, 1)).front());
  }
  return scores;
}

Embedded Evaluator::embed(
    const Rows& row, std::int64_t count,
    const std::function<void(std::int64_t, const Tensor&, const Tensor&)>& gather) {
  require(row.count() == 1, "one model embeds samples");
  if (!loss_.of_labels()) {
    throw ConfigError(
        "embeddings are given with one class label of each sample, which is not what these data "
        "and train.loss have; give data of classes");
  }
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
    for (std::int64_t first = 0; first < shard.test_rows(); first += kChunk) {
      const std::int64_t length = std::min(kChunk, shard.test_rows() - first);
      scores.push_back(sum_of(of_samples, first, length));
    }
    return scores;
  }
  const Tensor of_samples = at::empty({loss_.measures(), kChunk}, at::kDouble);
  for (std::int64_t first = 0; first < shard.test_rows(); first += kChunk) {
    const std::int64_t length = std::min(kChunk, shard.test_rows() - first);
    score_chunk(row, shard, first, length, of_samples, 0);
    scores.push_back(sum_of(of_samples, 0, length));
  }
  return scores;
}

}  // namespace fedhpc
