#include "reference/ef21p_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

namespace {

/// Which columns are compressed.
std::vector<std::int64_t> compressed_columns(const Problem& problem) {
  std::vector<std::int64_t> columns;
  for (const Field& field : problem.layout->fields()) {
    if (!has(field.tags, Tag::Trainable) || has(field.tags, Tag::Norm)) continue;
    for (std::int64_t i = 0; i < field.size; ++i) columns.push_back(field.offset + i);
  }
  return columns;
}

/// `row` [P] where of the columns `among` only those at `places` arrive.
Tensor sent(const Tensor& row, const std::vector<std::int64_t>& among,
            const std::vector<std::int64_t>& places) {
  Tensor arrives = row.clone();
  for (const std::int64_t column : among) arrives[column] = 0;
  for (const std::int64_t place : places) {
    const std::int64_t column = among[static_cast<std::size_t>(place)];
    arrives[column] = row[column];
  }
  return arrives;
}

/// The places of the k largest entries, the first of equal ones.
std::vector<std::int64_t> largest(const Tensor& row, const std::vector<std::int64_t>& among,
                                  std::int64_t k) {
  std::vector<double> magnitudes;
  for (const std::int64_t column : among) {
    magnitudes.push_back(std::abs(row[column].item<double>()));
  }
  std::vector<std::int64_t> places(among.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
    return magnitudes[static_cast<std::size_t>(a)] > magnitudes[static_cast<std::size_t>(b)];
  });
  places.resize(static_cast<std::size_t>(k));
  return places;
}

class Compressor {
 public:
  Compressor(const Problem& problem, const EF21PSettings& settings)
      : problem_(problem), settings_(settings), among_(compressed_columns(problem)) {
    d_ = static_cast<std::int64_t>(among_.size());
    const double share = std::floor(settings.fraction * static_cast<double>(d_) + 0.5);
    k_ = settings.columns > 0 ? settings.columns : static_cast<std::int64_t>(std::max(1.0, share));
  }

  Tensor down(const Tensor& row) const { return sent(row, among_, largest(row, among_, k_)); }

  Tensor up(const Tensor& row, std::int64_t client, std::int64_t round) const {
    if (k_ == d_ || settings_.upload == "dense") return row;
    if (settings_.upload == "top_k") return down(row);
    const DrawKey key{.seed = problem_.seed,
                      .purpose = Purpose::Codec,
                      .pass = 1,
                      .client = static_cast<std::uint64_t>(client),
                      .round = static_cast<std::uint64_t>(round)};
    const Tensor arrives =
        sent(row, among_, drawn(key, d_, static_cast<double>(k_) / static_cast<double>(d_)));
    return settings_.scale ? times(arrives, static_cast<double>(d_) / static_cast<double>(k_))
                           : arrives;
  }

  /// `row` with its compressed columns and no others multiplied.
  Tensor times(const Tensor& row, double factor) const {
    Tensor product = row.clone();
    for (const std::int64_t column : among_) product[column] = row[column].mul(factor);
    return product;
  }

  double bytes_down() const {
    std::int64_t bits = 0;
    while (k_ < d_ && (std::int64_t{1} << bits) < d_) ++bits;
    return std::ceil(static_cast<double>(k_ * bits) / 8) + 8 * numbers();
  }
  double bytes_up() const {
    if (k_ == d_ || settings_.upload == "dense") {
      return 8 * static_cast<double>(problem_.layout->size());
    }
    return settings_.upload == "top_k" ? bytes_down() : 8 + 8 * numbers();
  }

 private:
  double numbers() const { return static_cast<double>(k_ + problem_.layout->size() - d_); }

  const Problem& problem_;
  const EF21PSettings& settings_;
  std::vector<std::int64_t> among_;
  std::int64_t d_ = 0;
  std::int64_t k_ = 0;
};

}  // namespace

EF21POutcome ef21p(const Problem& problem, const EF21PSettings& settings) {
  const Compressor compressor(problem, settings);
  EF21POutcome result;
  result.bytes_up = compressor.bytes_up();
  result.bytes_down = compressor.bytes_down();
  Tensor x = flatten(problem.initial);
  Tensor w = x;
  std::vector<std::int64_t> messages(problem.clients.size(), 0);  // that each client has
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(w);
    double weight = 0;
    RoundLoss loss;
    double missed = 0;
    double clients = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained =
          train(problem, k, t, /*pass=*/0, unflatten(w, problem.initial), /*mu=*/0);
      const double p_k = weight_of(problem, k);
      sum = sum.add(compressor.up(flatten(trained.parameters).sub(w), k, t), p_k);
      weight += p_k;
      loss.add(trained);
      std::int64_t& has = messages[static_cast<std::size_t>(k)];
      // The last one is the round's own.
      const auto lacks = static_cast<double>(std::max<std::int64_t>(t - 2 - has, 0));
      has = t - 1;
      missed += std::min(lacks * result.bytes_down, 8 * static_cast<double>(w.numel()));
      clients += 1;
    }
    if (weight > 0) x = x.add(compressor.times(sum.div(weight), settings.server_lr));
    w = w.add(compressor.down(x.sub(w)));
    result.catch_up.push_back(missed / clients);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = w;
  return result;
}

}  // namespace fedhpc::reference
