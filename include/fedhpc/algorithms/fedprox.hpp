#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// FedProx: federated averaging whose clients are held near the model they received.
///
/// Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks",
/// MLSys 2020, Algorithm 2.
///
///   paper     code               meaning
///   w^t       global_            global model after round t
///   mu        algorithm.mu       weight of the proximal term, >= 0; 0: FedAvg, bit for bit
///   w_k       trained            approximate minimiser of f_k(w) + mu/2 ||w - w^t||^2
///
/// The local solver is the configured optimizer on the regularised loss, for train.local_steps or
/// train.local_epochs. With plain SGD the proximal term alone is a contraction towards w^t only for
/// mu * train.lr < 2; beyond that the local iterates diverge.
///
/// Deviations: clients are drawn uniformly without replacement and averaged by algorithm.weighting,
/// as in the authors' program. The text draws them by samples and averages them equally. Stragglers
/// are drawn client by client (train.stragglers).
class FedProx final : public Algorithm {
 public:
  Traits traits() const override { return {.averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  double mu_ = 0.01;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  Rows global_;                   // [1, P]
};

}  // namespace fedhpc
