#include "fedhpc/engine/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
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

/// A metric's name ends with the measure it is of, or with none.
bool measured_by(const std::string& name, const Loss& loss) {
  const bool numbers = loss.kind() == LossKind::MeanSquaredError;
  if (name.find("_accuracy") != std::string::npos) return !numbers;
  if (name.ends_with("_rmse")) return numbers;
  if (name.ends_with("_perplexity")) return loss.of_sequences();
  if (name.ends_with("_f1")) return loss.kind() == LossKind::BinaryCrossEntropy;
  return true;
}

}  // namespace

std::vector<double> RoundMetrics::values(const Loss& loss) const {
  const std::vector<double> all = {
#define FEDHPC_METRIC(name, unit, meaning) name,
#include "fedhpc/engine/metrics.def"
#undef FEDHPC_METRIC
  };
  std::vector<double> of_run;
  for (std::size_t m = 0; m < all.size(); ++m) {
    if (measured_by(metric_table()[m].name, loss)) of_run.push_back(all[m]);
  }
  of_run.insert(of_run.end(), own.begin(), own.end());
  return of_run;
}

const std::vector<Metric>& metric_table() {
  static const std::vector<Metric> table = {
#define FEDHPC_METRIC(name, unit, meaning) {#name, unit, meaning},
#include "fedhpc/engine/metrics.def"
#undef FEDHPC_METRIC
  };
  return table;
}

std::vector<Metric> metrics_of(const Loss& loss) {
  std::vector<Metric> metrics;
  std::ranges::copy_if(metric_table(), std::back_inserter(metrics),
                       [&](const Metric& metric) { return measured_by(metric.name, loss); });
  return metrics;
}

std::string measure_of(const Loss& loss) {
  return loss.kind() == LossKind::MeanSquaredError ? "rmse" : "accuracy";
}

Measured::Measured(const Score& score)
    : accuracy(score.samples > 0 ? score.correct / score.samples : kNan),
      loss(score.samples > 0 ? score.loss / score.samples : kNan),
      perplexity(std::exp(loss)),
      f1(score.samples == 0    ? kNan
         : score.positives > 0 ? 2 * score.hits / score.positives
                               : 1),
      rmse(std::sqrt(loss)) {}

Measured mean_over_clients(const std::vector<Score>& scores) {
  std::vector<Measured> all;
  for (const Score& score : scores) {
    if (score.samples > 0) all.emplace_back(score);
  }
  Measured mean{Score{}};
  for (double Measured::*const measure : {&Measured::accuracy, &Measured::loss,
                                          &Measured::perplexity, &Measured::f1, &Measured::rmse}) {
    std::vector<double> values;
    for (const Measured& of_client : all) values.push_back(of_client.*measure);
    mean.*measure = mean_of(values);
  }
  return mean;
}

PersonalMetrics::PersonalMetrics(std::int64_t num_clients, const Loss& loss)
    : lowest_(loss.kind() == LossKind::MeanSquaredError),
      now_(static_cast<std::size_t>(num_clients), kNan),
      best_(now_) {}

void PersonalMetrics::update(const std::vector<Score>& scores,
                             const std::vector<std::int64_t>& participants, RoundMetrics& metrics) {
  std::vector<double> values;
  std::vector<double> bests;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    if (scores[c].samples == 0) continue;
    const Measured measured(scores[c]);
    now_[c] = lowest_ ? measured.rmse : measured.accuracy;
    const double better = lowest_ ? std::min(best_[c], now_[c]) : std::max(best_[c], now_[c]);
    best_[c] = std::isnan(best_[c]) ? now_[c] : better;
    values.push_back(now_[c]);
    bests.push_back(best_[c]);
  }
  const Measured mean = mean_over_clients(scores);
  metrics.personal_loss = mean.loss;
  metrics.personal_perplexity = mean.perplexity;
  metrics.personal_f1 = mean.f1;
  metrics.personal_rmse = mean.rmse;
  if (lowest_) {
    metrics.best_personal_rmse = mean_of(bests);
    return;
  }
  std::vector<double> of_participants;
  for (const std::int64_t client : participants) {
    const Score& score = scores[static_cast<std::size_t>(client)];
    if (score.samples > 0) of_participants.push_back(score.correct / score.samples);
  }
  metrics.personal_accuracy = mean.accuracy;
  metrics.personal_accuracy_weighted = Measured(sum_of(scores)).accuracy;
  double spread = 0;
  for (const double accuracy : values) spread += std::pow(accuracy - mean.accuracy, 2);
  metrics.personal_accuracy_std =
      values.empty() ? kNan : std::sqrt(spread / static_cast<double>(values.size()));
  metrics.personal_accuracy_p10 = percentile(values, 0.1);
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
