#pragma once

#include <memory>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/shifted_training.hpp"

namespace fedhpc {

/// FedDyn: every client's loss has a linear and a quadratic term that move its minimum to that of
/// all clients' losses.
///
/// Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: "Federated Learning Based on Dynamic
/// Regularization", ICLR 2021, Algorithm 1.
///
///   theta_k <- argmin L_k(theta) - <g_k, theta> + alpha/2 ||theta - theta^{t-1}||^2
///   g_k     <- g_k - alpha (theta_k - theta^{t-1})
///   h       <- h - alpha |P|/m mean_P(theta_k - theta^{t-1})
///   theta^t <- mean_P(theta_k) - h / alpha
///
///   paper           code                     meaning
///   theta^t         global_                  the server's model
///   grad L_k        gradients_               g_k of a client, in the store; 0 for a new one
///   h               state_                   the server's; 0 at first
///   alpha           algorithm.alpha          above 0
///   P, m            topology.participation   participants of a round, all clients
///
/// The local solver is the configured optimizer for train.local_steps or train.local_epochs;
/// train.clip_norm shortens the loss's gradients alone. Models travel and nothing else. Means are
/// weighed by algorithm.weighting, uniform by default, as in the paper. Batch norm's statistics are
/// averaged and have neither g_k nor h. A client without a local step keeps its g_k.
///
/// Limit case: the first round is FedProx's with mu = alpha and a server step of 1 + |P|/m.
/// Deviation: the authors' program divides alpha by a client's weight; here all have the same.
class FedDyn final : public Algorithm {
 public:
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  double alpha_ = 0.1;
  AveragingOptions averaging_{.weighting = Weighting::Uniform};
  std::unique_ptr<Codec> codec_;     // of uploads
  ShiftedTraining training_;         // Q of P columns
  Rows global_;                      // [1, P]  theta
  Rows state_;                       // [1, Q]  h
  StoredRows* gradients_ = nullptr;  // g_k
};

}  // namespace fedhpc
