#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/algorithms/aggregation_record.hpp"
#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// Federated averaging of the factors u of a model that is factorised from the beginning, or of an
/// update of a frozen one:
///
///   w_k = expand(u_k),   u <- sum_k p_k u_k
///
/// FedLMT, FedPara and LoRA share it.
class FactorAveraging : public Algorithm {
 public:
  /// The method works with these factorisations.
  explicit FactorAveraging(std::vector<std::string> factorisations)
      : factorisations_(std::move(factorisations)) {}

  Traits traits() const override;
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override {
    server_.visit_state(state, "factors", factors_);
  }

 protected:
  const std::vector<std::string>& factorisations() const { return factorisations_; }
  /// Declares the keys of the mean over clients and of the server's step.
  void declare_averaging(OptionSet& options);
  FactorMap& updates() const { return *map_; }
  /// Clients train factors that begin at `first` [1, Q] and stand for models by `model`, which
  /// outlives the rounds.
  void begin(const Setup& setup, Rows first, RowMap& model);

 private:
  std::vector<std::string> factorisations_;
  std::optional<double> init_range_;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  FactorMap* map_ = nullptr;      // u -> the factorised weights, or their updates
  RowMap* model_ = nullptr;       // u -> w
  Rows factors_;                  // [1, Q]  u
  AggregationRecord record_;
};

}  // namespace fedhpc
