#pragma once

#include "fedhpc/algorithms/message_passing.hpp"

namespace fedhpc {

/// FedAMP: Y. Huang, L. Chu, Z. Zhou, L. Wang, J. Liu, J. Pei, Y. Zhang, "Personalized Cross-Silo
/// Federated Learning on Non-IID Data", AAAI 2021, Algorithm 1.
///
///   min over w_1, ..., w_N of sum_i F_i(w_i) + lambda sum_{i < j} A(||w_i - w_j||^2),
///   A(x) = 1 - exp(-x / sigma)
///
///   u_i = (1 - sum_{j != i} xi_ij) w_i + sum_{j != i} xi_ij w_j,
///   xi_ij = alpha_k A'(||w_i - w_j||^2) = alpha_k / sigma exp(-||w_i - w_j||^2 / sigma)
///
///   paper     code                   limit case
///   sigma     algorithm.sigma        the squared distance within which models attract each other
///   alpha_k   algorithm.alpha_k      0: u_i = w_i, and with lambda = 0 every client is alone
///   lambda    algorithm.lambda       0: u_i is only where local training starts
///   (xi_ii)   algorithm.own_weight   clamp: at least 0; any: it may be negative
///   w_i, u_i  MessagePassing
///
/// Distances are taken over the trainable columns. With one client u_i = w_i. With plain SGD the
/// proximal term is a contraction for lambda * train.lr < 2 only.
///
/// Deviations, and choices where the paper is silent:
/// - algorithm.lambda is the weight of the proximal term, lambda/2 ||w - u_i||^2. The paper's is
///   lambda / (2 alpha_k); for alpha_k = 1, the default, both are the same.
/// - alpha_k stays the same in all rounds.
/// - The paper asks for alpha_k so small that no weight is negative. Where the others' weights are
///   more than 1 together, they are scaled down to 1 and w_i itself weighs 0. With alpha_k at most
///   sigma / (N - 1) that never happens: with the defaults up to 26 clients. Public programs let
///   the weight of w_i be negative instead (own_weight = any; configs/authors/fedamp.ini).
/// - Local training starts at u_i and takes the configured steps.
/// - With partial participation only drawn clients get and train their models; all count in u_i.
class FedAMP final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Personal, .can_leave_rounds = false}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override { passing_.initialise(setup); }
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override { passing_.evaluate(evaluation); }
  void visit_state(StateVisitor&) override {}  // all of it lies with the clients

 private:
  enum class OwnWeight { Clamp, Any };

  double sigma_ = 25;
  double alpha_k_ = 1;
  OwnWeight own_weight_ = OwnWeight::Clamp;
  MessagePassing passing_;
};

}  // namespace fedhpc
