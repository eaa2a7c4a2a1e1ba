#pragma once

#include <span>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// What aggregating factors in the place of the weights that they stand for does to the weights;
/// what FedMUD, FedLMT and FedPara record of it. Measures factorised columns alone.
class AggregationRecord {
 public:
  AggregationRecord() = default;
  /// Adds the series aggregation_gap, and effective_rank.LAYER of every factorised layer.
  explicit AggregationRecord(const Setup& setup);

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

}  // namespace fedhpc
