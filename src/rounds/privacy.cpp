#include "fedhpc/rounds/privacy.hpp"

#include <cmath>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

void PrivacyOptions::declare(OptionSet& options) {
  options.add("privacy.clip", clip, at_least(0.0),
              "length to which the server shortens the change that a client sends, over all "
              "trainable columns of the payload (S of DP-FedAvg); 0: as it comes");
  options
      .add("privacy.noise", noise, at_least(0.0),
           "standard deviation, over privacy.clip, of the Gaussian noise that the server adds to "
           "the sum of a round's changes (z of DP-FedAvg); the series epsilon says what it gives; "
           "needs algorithm.weighting = uniform; 0: none")
      .acts(unless("privacy.clip", "0"));
  options
      .add("privacy.delta", delta, {.low = 0, .high = 1, .low_open = true, .high_open = true},
           "probability with which epsilon need not hold; less than 1 over the number of clients")
      .acts(unless("privacy.noise", "0"));
}

void PrivacyOptions::check(const OptionSet& options, std::int64_t uploads) const {
  if (on() && uploads == 0) {
    options.refuse("privacy.clip",
                   concat("algorithm.name = ", options.entry("algorithm.name").print(),
                          " as it is configured, whose server learns more of a client than means; "
                          "leave the method's own compression out"));
  }
  if (!on() || noise == 0 || !options.contains("algorithm.weighting")) return;
  const std::string weighting = options.entry("algorithm.weighting").print();
  if (weighting != "uniform") {
    options.refuse("privacy.noise",
                   concat("algorithm.weighting = ", weighting,
                          ", with which a client's part of the mean has no bound; use uniform"));
  }
}

std::vector<double> Privacy::clip_(const Rows& rows) const {
  std::vector<double> longer;
  for (const double length : fedhpc::clip_(rows, options_.clip).values()) {
    longer.push_back(length > options_.clip ? 1 : 0);
  }
  return longer;
}

void Privacy::add_noise_(const Rows& row, std::int64_t round, std::int64_t channel) const {
  Draws draws({.seed = seed_,
               .purpose = Purpose::Privacy,
               .pass = static_cast<std::uint64_t>(channel),
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
      {kClipped, "fraction", "of the changes that clients sent, those longer than privacy.clip"}};
  if (has_noise()) {
    metrics.push_back(
        {kEpsilon, "1", "differential privacy of a client after this round, at privacy.delta"});
  }
  return metrics;
}

}  // namespace fedhpc
