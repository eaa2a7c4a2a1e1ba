#pragma once

#include <span>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Records what happens to the weights when their factors are aggregated in their place, for
/// FedMUD, FedLMT, FedPara and LoRA. Measures factorised columns alone.
class AggregationRecord {
 public:
  AggregationRecord() = default;
  /// Adds the series aggregation_gap, and effective_rank.LAYER of every factorised layer.
  explicit AggregationRecord(const Setup& setup);

  /// A round of the server: the weights before [1, P], and factors [1, Q].
  struct Step {
    const Rows& before;
    const Rows& mean;   ///< of the factors that clients have
    const Rows& after;  ///< what the server has made of it
  };

  /// Starts a mean over clients of the change of the weights behind their factors.
  Mean products(Round& round) const { return round.mean(map_->full()); }
  /// Adds the weights that these clients' factors [C, Q] stand for, less those of the server's
  /// before, [1, P].
  void add(Mean& products, std::span<const double> weights, const Rows& factors,
           const Rows& before) const;
  /// Notes || mean of the products - product of the means ||, FedMUD's (6) minus (7). Notes the
  /// effective rank of each layer's change of weights. Collective.
  void note(Round& round, Mean& products, const Step& step) const;

 private:
  FactorMap* map_ = nullptr;
};

}  // namespace fedhpc
