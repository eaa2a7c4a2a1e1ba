#pragma once

#include "fedhpc/algorithms/message_passing.hpp"

namespace fedhpc {

/// HeurFedAMP: Y. Huang, L. Chu, Z. Zhou, L. Wang, J. Liu, J. Pei, Y. Zhang, "Personalized
/// Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, the heuristic form of FedAMP for deep
/// networks; a baseline of sFedHP.
///
///   u_i = sum_j xi_ij w_j,   xi_ii = alpha,
///   xi_ij = (1 - alpha) exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h))
///
///   paper     code               limit case
///   alpha     algorithm.alpha    1: u_i = w_i, and with lambda = 0 every client is alone
///   sigma     algorithm.sigma    0: all others weigh the same
///   lambda    algorithm.lambda   0: u_i is only where local training starts
///   w_i, u_i  MessagePassing
///
/// Cosines are taken over the trainable columns; that of a model of zeros is 0. With one client
/// u_i = w_i. With plain SGD the proximal term is a contraction for lambda * train.lr < 2 only.
///
/// Deviations, and choices where the paper is silent:
/// - algorithm.lambda is the weight of the proximal term, lambda/2 ||w - u_i||^2; the paper's is
///   lambda / (2 alpha_k).
/// - Local training starts at u_i and takes the configured steps.
/// - With partial participation only drawn clients get and train their models; all count in u_i.
class HeurFedAMP final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Personal, .can_leave_rounds = false}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override { passing_.initialise(setup); }
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override { passing_.evaluate(evaluation); }
  void visit_state(StateVisitor&) override {}  // all of it lies with the clients

 private:
  double sigma_ = 25;
  double alpha_ = 0.5;
  MessagePassing passing_;
};

}  // namespace fedhpc
