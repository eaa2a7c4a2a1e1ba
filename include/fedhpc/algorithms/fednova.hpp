#pragma once

#include <memory>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// FedNova: the server averages changes of models per local step, so that clients with more steps
/// do not pull the solution towards theirs.
///
/// Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous
/// Federated Optimization", NeurIPS 2020, equations (7) to (9).
///
///   d_i = (x - y_i) / (eta ||a_i||_1),   x <- x - tau_eff eta sum_i p_i d_i,
///   tau_eff = sum_i p_i ||a_i||_1
///
///   paper      code                    meaning
///   x          global_                 global model
///   y_i        trained                 after tau_i local steps from x
///   a_i        lengths_of              x - y_i = eta sum_k a_ik g_ik, by the local optimizer
///   rho        train.momentum          of momentum and nesterov
///   mu         algorithm.mu            of the proximal term; 0: none
///   p_i        algorithm.weighting     over the participants
///   tau_i      train.local_epochs      batches of them: clients with more samples take more steps
///
/// Entry k of a_i is what a gradient of 1 in step k alone moves until the end, over eta:
///
///   SGD                  tau_i
///   proximal term        (1 - (1 - eta mu)^tau_i) / (eta mu)
///   momentum             (tau_i - rho (1 - rho^tau_i) / (1 - rho)) / (1 - rho)
///
/// are ||a_i||_1. Steps of any of these optimizers are followed, with both at once, too, where
/// entries may be negative. The series effective_steps is tau_eff.
///
/// A client sends d_i and ||a_i||_1. Batch norm's statistics are averaged as they are.
///
/// Limit case: where all clients take the same number of steps it is FedAvg, or FedProx, up to
/// rounding.
///
/// Deviations: with the proximal term the authors' program takes tau_eff = sum_i p_i tau_i, so that
/// its steps are longer. It counts Nesterov's momentum as plain momentum, and both terms at once by
/// another recursion. Weight decay and clipping count as parts of the gradient.
class FedNova final : public Algorithm {
 public:
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

  /// ||a||_1 of `steps` local steps by `rule` at the rate eta with the proximal term mu.
  static double length_of(const StepRule& rule, double eta, double mu, std::int64_t steps);

 private:
  /// ||a_i||_1 of each client, [C].
  std::vector<double> lengths_of(Block& block, double eta) const;

  double mu_ = 0;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  TrainOptions training_options_;
  LayoutPtr one_number_;
  std::unique_ptr<Codec> codec_;  // of uploads
  Rows global_;                   // [1, P]  x
};

}  // namespace fedhpc
