#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/algorithms/aggregation_record.hpp"
#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Federated averaging of the factors u of a model that is factorised from the beginning:
///
///   w_k = expand(u_k),   u <- sum_k p_k u_k
///
/// FedLMT and FedPara share it.
class FactorAveraging : public Algorithm {
 public:
  /// The method works with `factorisation`.
  explicit FactorAveraging(std::string factorisation) : factorisation_(std::move(factorisation)) {}

  Traits traits() const override;
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  std::string factorisation_;
  std::optional<double> init_range_;
  AveragingOptions averaging_;
  std::unique_ptr<Codec> codec_;  // of uploads
  FactorMap* map_ = nullptr;
  Rows factors_;  // [1, Q]  u
  AggregationRecord record_;
};

}  // namespace fedhpc
