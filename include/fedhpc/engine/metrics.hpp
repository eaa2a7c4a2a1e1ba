#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fedhpc/core/metric.hpp"
#include "fedhpc/rounds/state_visitor.hpp"
#include "fedhpc/training/evaluator.hpp"

namespace fedhpc {

/// The values of one round; names, units and meanings stand in metrics.def. NaN where not
/// applicable.
struct RoundMetrics {
#define FEDHPC_METRIC(name, unit, meaning) double name = std::numeric_limits<double>::quiet_NaN();
#include "fedhpc/engine/metrics.def"
#undef FEDHPC_METRIC

  std::vector<double> own;  ///< of the method's own series, in their order

  /// Those of a run with this loss, in order of metrics.def, then own.
  std::vector<double> values(const Loss& loss = {}) const;
};

/// The lines of metrics.def.
const std::vector<Metric>& metric_table();
/// Those that a run with this loss has: the accuracy of what has classes, the perplexity of
/// sequences, F1 of binary cross entropy, the rmse of numbers.
std::vector<Metric> metrics_of(const Loss& loss);
/// What clients are compared by: accuracy, or rmse where there is none.
std::string measure_of(const Loss& loss);

/// What a score says by each measure; NaN without samples.
struct Measured {
  explicit Measured(const Score& score);

  double accuracy;
  double loss;
  double perplexity;
  double f1;  ///< 2 TP / (2 TP + FP + FN); 1 where nothing is positive and nothing predicted
  double rmse;
};

/// Plain means over the clients that have samples; NaN where none has.
Measured mean_over_clients(const std::vector<Score>& scores);

/// Keeps the best accuracy (the lowest rmse where there is none) of every client so far, and
/// derives metrics from all clients' scores of one evaluation.
class PersonalMetrics {
 public:
  explicit PersonalMetrics(std::int64_t num_clients, const Loss& loss = {});

  /// Fills the personal_* metrics, participant_accuracy and best_personal_* from every client's
  /// score [N]. `participants` are the ids of the round's cohort.
  void update(const std::vector<Score>& scores, const std::vector<std::int64_t>& participants,
              RoundMetrics& metrics);

  /// Of each client, [N]: accuracy or rmse now, NaN without test samples, and at best.
  const std::vector<double>& now() const { return now_; }
  const std::vector<double>& best() const { return best_; }
  void visit_state(StateVisitor& state);

 private:
  bool lowest_;  // is best
  std::vector<double> now_;
  std::vector<double> best_;
};

}  // namespace fedhpc
