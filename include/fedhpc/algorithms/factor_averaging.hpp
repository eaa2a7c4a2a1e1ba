#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// What aggregating factors in the place of the weights that they stand for does to the weights;
/// what FedMUD, FedLMT and FedPara record of it. Measures factorised columns alone.
class AggregationRecord {
 public:
  AggregationRecord() = default;
  explicit AggregationRecord(FactorMap& map) : map_(&map) {}

  /// aggregation_gap, and effective_rank.<layer> of every factorised layer.
  std::vector<RoundMetric> metrics() const;
  /// Over the round's clients: how what their factors stand for has changed.
  Mean products(Round& round) const { return round.mean(map_->full()); }
  /// Adds what these clients' factors [C, Q] stand for, less what the server's did before, [1, P].
  void add(Mean& products, std::span<const double> weights, const Rows& factors,
           const Rows& before) const;
  /// Notes || mean of the products - product of the means ||, FedMUD's (6) minus (7), and the
  /// effective rank of how each layer's weights have changed. `before` and `after` [1, Q]: the
  /// server's factors. Collective.
  void note(Round& round, Mean& products, const Rows& before, const Rows& after) const;

 private:
  FactorMap* map_ = nullptr;
};

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
