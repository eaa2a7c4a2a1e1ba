#pragma once

#include <cstdint>
#include <limits>
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

  std::vector<double> values() const;  ///< in order of metrics.def, then own
};

/// The lines of metrics.def.
const std::vector<Metric>& metric_table();

/// Plain means over the clients that have samples; NaN where none has.
struct MeanScore {
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  double loss = std::numeric_limits<double>::quiet_NaN();
};
MeanScore mean_over_clients(const std::vector<Score>& scores);

/// Keeps the best accuracy of every client so far, and derives metrics from all clients' scores of
/// one evaluation.
class PersonalMetrics {
 public:
  explicit PersonalMetrics(std::int64_t num_clients);

  /// Fills the personal_* metrics, participant_accuracy and best_personal_accuracy from every
  /// client's score [N]. `participants` are the ids of the round's cohort.
  void update(const std::vector<Score>& scores, const std::vector<std::int64_t>& participants,
              RoundMetrics& metrics);

  const std::vector<double>& accuracy() const {
    return accuracy_;
  }                                                          ///< [N], NaN without test samples
  const std::vector<double>& best() const { return best_; }  ///< [N]
  void visit_state(StateVisitor& state);

 private:
  std::vector<double> accuracy_;
  std::vector<double> best_;
};

}  // namespace fedhpc
