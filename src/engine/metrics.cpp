#include "fedhpc/engine/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/empty.h>

#include "fedhpc/core/percentile.hpp"

namespace fedhpc {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return kNan;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::vector<double> RoundMetrics::values() const {
  std::vector<double> all = {
#define FEDHPC_METRIC(name, unit, meaning) name,
#include "fedhpc/engine/metrics.def"
#undef FEDHPC_METRIC
  };
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

const std::vector<Metric>& metric_table() {
  static const std::vector<Metric> table = {
#define FEDHPC_METRIC(name, unit, meaning) {#name, unit, meaning},
#include "fedhpc/engine/metrics.def"
#undef FEDHPC_METRIC
  };
  return table;
}

MeanScore mean_over_clients(const std::vector<Score>& scores) {
  std::vector<double> accuracies;
  std::vector<double> losses;
  for (const Score& score : scores) {
    if (score.samples == 0) continue;
    accuracies.push_back(score.correct / score.samples);
    losses.push_back(score.loss / score.samples);
  }
  return {.accuracy = mean_of(accuracies), .loss = mean_of(losses)};
}

PersonalMetrics::PersonalMetrics(std::int64_t num_clients)
    : accuracy_(static_cast<std::size_t>(num_clients), kNan), best_(accuracy_) {}

void PersonalMetrics::update(const std::vector<Score>& scores,
                             const std::vector<std::int64_t>& participants, RoundMetrics& metrics) {
  std::vector<double> accuracies;
  std::vector<double> bests;
  double correct = 0;
  double samples = 0;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const Score& score = scores[c];
    if (score.samples == 0) continue;
    const double accuracy = score.correct / score.samples;
    accuracy_[c] = accuracy;
    best_[c] = std::isnan(best_[c]) ? accuracy_[c] : std::max(best_[c], accuracy_[c]);
    accuracies.push_back(accuracy);
    bests.push_back(best_[c]);
    correct += score.correct;
    samples += score.samples;
  }
  std::vector<double> of_participants;
  for (const std::int64_t client : participants) {
    const Score& score = scores[static_cast<std::size_t>(client)];
    if (score.samples > 0) of_participants.push_back(score.correct / score.samples);
  }
  const MeanScore mean = mean_over_clients(scores);
  metrics.personal_accuracy = mean.accuracy;
  metrics.personal_accuracy_weighted = samples > 0 ? correct / samples : kNan;
  double spread = 0;
  for (const double accuracy : accuracies)
    spread += std::pow(accuracy - metrics.personal_accuracy, 2);
  metrics.personal_accuracy_std =
      accuracies.empty() ? kNan : std::sqrt(spread / static_cast<double>(accuracies.size()));
  metrics.personal_accuracy_p10 = percentile(accuracies, 0.1);
  metrics.personal_loss = mean.loss;
  metrics.participant_accuracy = mean_of(of_participants);
  metrics.best_personal_accuracy = mean_of(bests);
}

void PersonalMetrics::visit_state(StateVisitor& state) {
  const auto count = static_cast<std::int64_t>(best_.size());
  Tensor best = at::empty({count}, at::kDouble);
  std::copy(best_.begin(), best_.end(), best.data_ptr<double>());
  state.tensor("best_accuracy", best);
  require(best.numel() == count, "a checkpoint has as many clients as its run");
  std::copy_n(best.const_data_ptr<double>(), best_.size(), best_.begin());
}

}  // namespace fedhpc
