#include "fedhpc/rounds/privacy.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

void PrivacyOptions::declare(OptionSet& options) {
  options.add("privacy.clip", clip, at_least(0.0),
              "length to which the server shortens the change that a client sends, over all "
              "trainable columns of the payload (S of DP-FedAvg); what dsgd and pfedsop send are "
              "gradients; 0: as it comes");
  options
      .add("privacy.noise", noise, at_least(0.0),
           "standard deviation, over privacy.clip, of the Gaussian noise that the server adds to "
           "the sum of a round's changes (z of DP-FedAvg); the series epsilon says what it gives; "
           "needs algorithm.weighting = uniform; 0: none")
      .acts(unless("privacy.clip", "0"));
  options
      .add(
          "privacy.delta", delta, {.low = 0, .high = 1, .low_open = true, .high_open = true},
          "probability with which epsilon need not hold; epsilon says little, and a warning comes, "
          "where it is not below 1 over the number of clients")
      .acts(unless("privacy.noise", "0"));
}

void PrivacyOptions::check(const OptionSet& options, std::int64_t uploads) const {
  if (on() && uploads == 0) {
    options.refuse("privacy.clip",
                   concat("algorithm.name = ", options.entry("algorithm.name").print(),
                          " as it is configured, whose server learns more of a client than means; "
                          "leave the method's own compression out"));
  }
  if (!on() || noise == 0) return;
  if (options.contains("data.standardize") &&
      options.entry("data.standardize").print() == "pixel") {
    options.refuse("privacy.noise",
                   "data.standardize = pixel, which takes means over the samples of all clients; "
                   "use another one, or standardize the data before");
  }
  if (!options.contains("algorithm.weighting")) return;
  const std::string weighting = options.entry("algorithm.weighting").print();
  if (weighting != "uniform") {
    options.refuse("privacy.noise",
                   concat("algorithm.weighting = ", weighting,
                          ", with which a client's part of the mean has no bound; use uniform"));
  }
}

void Privacy::check_uploads(std::int64_t count) const {
  if (count > 0 && count <= uploads_) return;
  throw ConfigError(concat("privacy.clip holds for the ", uploads_,
                           " changes of a client in a round ",
                           "of which the method tells (averaged_uploads), and it has sent ", count,
                           "; tell of all that upload() sends"));
}

void Privacy::check_all(std::int64_t all, std::int64_t most, std::int64_t participants) const {
  if (!has_noise() || all == most * participants) return;
  throw ConfigError(concat(
      "privacy.noise holds where every participant sends as many changes, and ", participants,
      " of them have sent ", all, ", one of them ", most, "; upload those of the whole block"));
}

std::vector<double> Privacy::clip_(const Rows& rows) const {
  std::vector<double> longer;
  for (const double length : fedhpc::clip_(rows, options_.clip).values()) {
    if (!std::isfinite(length)) {
      const Tensor row = rows.values[std::ssize(longer)];
      for (const auto& [begin, end] : rows.layout->ranges(Tag::Trainable)) {
        row.narrow(0, begin, end - begin).zero_();
      }
    }
    longer.push_back(length <= options_.clip ? 0 : 1);
  }
  return longer;
}

void SentChanges::begin_pass() { in_pass_.clear(); }

std::int64_t SentChanges::add(std::span<const std::int64_t> clients) {
  for (const std::int64_t client : clients) {
    ++in_pass_[client];
    most_ = std::max(most_, ++in_round_[client]);
  }
  return most_;
}

void Privacy::add_noise_(const Rows& row, std::int64_t round, std::int64_t pass,
                         std::int64_t number) const {
  Draws draws({.seed = seed_,
               .purpose = Purpose::Privacy,
               .pass = static_cast<std::uint64_t>(number),
               .epoch = static_cast<std::uint64_t>(pass),
               .round = static_cast<std::uint64_t>(round)});
  const double deviation = options_.noise * options_.clip;
  const Tensor noise = at::zeros(row.values.sizes(), at::kDouble);
  auto* values = noise.data_ptr<double>();
  for (const Field& field : row.layout->fields()) {
    if (!has(field.tags, Tag::Trainable)) continue;
    for (std::int64_t i = 0; i < field.size; ++i) {
      values[field.offset + i] = deviation * draws.normal();
    }
  }
  row.values.add_(noise.to(row.values.device(), row.values.scalar_type()));
}

std::vector<Metric> Privacy::metrics() const {
  std::vector<Metric> metrics{
      {kClipped, "fraction",
       "of the changes of clients with samples, those longer than privacy.clip"}};
  if (has_noise()) {
    metrics.push_back(
        {kEpsilon, "1", "differential privacy of a client after this round, at privacy.delta"});
  }
  return metrics;
}

}  // namespace fedhpc
