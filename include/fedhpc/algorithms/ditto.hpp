#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// Ditto: beside the global model every client has one of its own, held near the global one.
///
/// T. Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization",
/// ICML 2021, Algorithm 1 with FedAvg as its solver.
///
///   min_v h_k(v; w*) = F_k(v) + lambda/2 ||v - w*||^2,   w* the solution of FedAvg
///
///   paper     code               meaning
///   w^t       global_            global model after round t
///   v_k       personal_          personal model of client k, which starts from the initial model
///   lambda    algorithm.mu       0: v_k is what client k gets alone; large: v_k = w^t
///   s, E      train.local_steps, train.local_epochs
///
/// Both trainings of a round see the same batches, as in the authors' program. Their order says
/// nothing, as the centre is the w^t that was received. The global model is FedAvg's, whatever
/// lambda. With plain SGD the proximal term is a contraction for lambda * train.lr < 2 only.
///
/// Deviation: clients are averaged by algorithm.weighting (the text and the authors' program
/// average them equally).
class Ditto final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  /// w_k^t - w^t as they arrive, [C, P].
  Rows common_update(Block& block, const Rows& start) const;

  double mu_ = 0.1;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;    // of uploads
  Rows global_;                     // [1, P]
  StoredRows* personal_ = nullptr;  // [clients of this rank, P]
};

}  // namespace fedhpc
