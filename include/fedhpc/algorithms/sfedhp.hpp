#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// sFedHP: X. Liu, Q. Wang, Y. Shao, Y. Li, "Sparse Federated Learning with Hierarchical
/// Personalization Models", Algorithm 1.
///
///   min_w  1/N sum_i 1/J sum_j F_ij(w),                                                 (1), (2)
///   F_ij(w) = min_{phi, theta}  l_ij(theta) + lambda_1/2 ||theta - phi||^2
///                               + gamma_1 phi_rho(theta)
///                               + lambda_2/2 ||phi - w||^2 + gamma_2 phi_rho(w)               (3)
///
/// with phi_rho(x) = rho sum_n log cosh(x_n / rho), which stands in for ||x||_1 (4). R times, from
/// phi_i = w_i = w:
///
///   theta_ij ~ argmin l_ij(theta; D) + lambda_1/2 ||theta - phi_i||^2
///                                    + gamma_1 phi_rho(theta)                              (8)
///   phi_i   <- 1/J sum_j (lambda_1 theta_ij + lambda_2 w_i) / (lambda_1 + lambda_2)   (10), (6)
///   w_i     <- w_i - eta_1 [lambda_2 (w_i - phi_i) + gamma_2 tanh(w_i / rho)]              (11)
///
/// Then w <- (1 - beta) w + beta/S sum_i w_i.
///
///   paper            code                             limit case
///   T                run.rounds
///   R                algorithm.edge_rounds            one FL round at the edge each
///   |D|, once per r  train.batch_size, local_steps=1  more steps: theta goes on from batch to
///                                                     batch
///   K                algorithm.inner_steps            gradient steps on H (8)
///   nu               algorithm.accuracy               0: always K steps
///   lambda_1         algorithm.lambda1                0: theta trains alone, w stays (gamma_2 = 0)
///   lambda_2         algorithm.lambda2
///   gamma_1          algorithm.gamma1                 0: not sparse
///   gamma_2          algorithm.gamma2                 0: not sparse
///   rho              algorithm.rho
///   eta_1            train.lr                         of w_i (11)
///   eta_2            algorithm.personal_lr            of theta
///   beta             algorithm.beta                   1: the plain mean
///   N, S             topology.edges, edge_participation
///   (start)          algorithm.restart                step: theta begins every edge round at phi;
///                                                     round: the first one of a round alone
///   (zeros)          algorithm.zero_threshold         numbers up to it are 0, with gamma above 0
///   (later gammas)   algorithm.gamma_schedule         constant: never; either, both: by one or
///                                                     both of the next two; each: the first is
///                                                     for gamma_1, the second for gamma_2
///                    algorithm.gamma_density          theta's mean density has been below it
///                    algorithm.gamma_rounds           so many rounds are over
///                    algorithm.gamma_later            what gammas become, unless they are smaller
///
/// (8) is solved by train.optimizer (plain gradient steps, or Nesterov's), fresh for every batch.
/// A step of an edge is one of pFedMe with lambda_bar = lambda_1 lambda_2 / (lambda_1 + lambda_2):
///
///   lambda_2 (w - phi) = lambda_bar (w - mean theta)
///
/// Choices the paper leaves open:
/// - theta starts at phi_i in every edge round (restart = step), or goes on from one edge round to
///   the next (round), which diverges for smaller lambda.
/// - No gradient step reaches 0 itself: entries up to algorithm.zero_threshold become 0 in theta
///   where gamma_1 > 0, in phi, w_i and w where gamma_2 > 0. What is sent is what is used.
/// - gammas become algorithm.gamma_later ("a tiny number") when the mean density of theta has been
///   below gamma_density or gamma_rounds rounds are over. gamma_schedule has other readings; the
///   paper says "and".
/// - Only drawn edges run. (There all do, and some are averaged: the same for theirs.) One whose
///   participants have no training samples keeps what it has received.
/// - The batches of an edge round are those of the pass of its number.
class SFedHP final : public Algorithm {
 public:
  Traits traits() const override {
    return {.tiers = Tiers::ClientEdgeCloud,
            .models = Models::Both,
            .trainings_in_round = edge_rounds_};
  }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Restart { Step, Round };
  enum class Schedule { Constant, Either, Both, Each };

  /// theta_ij(phi_i) of (8) for a block's clients, [C, P]. `phi` [C, P].
  Rows personalise(Block& block, const Rows& phi, std::int64_t edge_round);
  /// (10), (6) and (11): moves phi_i and w_i [1, P] by the mean of the edge's thetas [1, P].
  void update_edge_(const Rows& phi, const Rows& w, const Rows& mean_theta, double eta) const;
  void update_gammas(std::int64_t round);
  void note(Round& round);

  double lambda1_ = 20;
  double lambda2_ = 20;
  double gamma1_ = 0;
  double gamma2_ = 0;
  double rho_ = 6e-5;
  double zero_threshold_ = 1e-3;
  Schedule schedule_ = Schedule::Either;
  double gamma_density_ = 0.2;
  std::int64_t gamma_rounds_ = 100;
  double gamma_later_ = 1e-6;
  double personal_lr_ = 0.05;
  InnerSolve inner_{.steps = 5};
  Restart restart_ = Restart::Step;
  std::int64_t edge_rounds_ = 20;
  double beta_ = 1;
  AveragingOptions averaging_{.weighting = Weighting::Uniform};  // objectives (1) and (2)

  double edge_lr_ = 0;                       // eta_1
  std::unique_ptr<RowOptimizer> optimizer_;  // of theta
  std::unique_ptr<Codec> codec_;
  Rows global_;                     // [1, P]  w
  EdgeRows edges_;                  // [E of this rank, P]  w_i
  StoredRows* personal_ = nullptr;  // theta_ij
  std::int64_t is_sparse_ = 0;      // 1: the clients' density has been below gamma_density
  double round_gamma1_ = 0;         // of the current round
  double round_gamma2_ = 0;
};

}  // namespace fedhpc
