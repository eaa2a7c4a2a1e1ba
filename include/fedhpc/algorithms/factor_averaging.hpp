#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "fedhpc/algorithms/aggregation_record.hpp"
#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Federated averaging of the factors u of a model that is factorised from the beginning:
///
///   w_k = expand(u_k),   u <- sum_k p_k u_k
///
/// What FedLMT and FedPara have in common.
class FactorAveraging : public Algorithm {
 public:
  FactorDraw factor_draw() const override { return {.range = init_range_}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  std::vector<RoundMetric> metrics() const override { return record_.metrics(); }
  /// Received, trained, gradient, difference; what they stand for, its gradient, and for the
  /// record what is sent stands for. Once: the model, the record's mean, and singular values of
  /// the largest layer in float64.
  RowsInHand rows_in_hand() const override { return {.full = 3, .factors = 4, .once = 12}; }
  bool can_leave_rounds() const override { return true; }
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  std::optional<double> init_range_;
  AveragingOptions averaging_;
  std::unique_ptr<Codec> codec_;  // of uploads
  FactorMap* map_ = nullptr;
  Rows factors_;  // [1, Q]  u
  AggregationRecord record_;
};

}  // namespace fedhpc
