#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// pFedMe: C. T. Dinh, N. H. Tran, J. Nguyen, "Personalized Federated Learning with Moreau
/// Envelopes", NeurIPS 2020, Algorithm 1; a baseline of TDPFed and sFedHP.
///
///   min_w sum_k p_k F_k(w),  F_k(w) = min_theta f_k(theta) + lambda/2 ||theta - w||^2
///
///   theta <- K steps on f_k(theta; D) + lambda/2 ||theta - w_k||^2        R times, from w_k = w
///   w_k   <- w_k - eta lambda (w_k - theta)
///   w     <- (1 - beta) w + beta sum_k p_k w_k                            server
///
///   paper    code                    limit case
///   T        run.rounds
///   R        train.local_steps       (or epochs) of one batch D each
///   K        algorithm.inner_steps   gradient steps on theta with that batch
///   lambda   algorithm.lambda        0: theta is trained alone, w stays
///   eta      train.lr                0: w stays
///   eta_p    algorithm.personal_lr   of the steps on theta
///   beta     algorithm.beta          1: the plain mean; 0: w stays
///   (start)  algorithm.restart       round: theta starts at w; step: at w_k with every batch
///   (own)    algorithm.evaluate      personal: theta is scored; local: w_{k,R}
///   (who)    algorithm.training      participants; all: absent clients too
///
/// The steps on theta follow train.optimizer (the paper's theory takes Nesterov's, its experiments
/// plain gradient steps), fresh for every batch. Choices the paper leaves open:
/// - theta goes on from batch to batch within a round (restart = round), or starts at w_k with
///   every batch (step).
/// - theta is evaluated, or w_{k,R} (evaluate = local), which is what the authors' program scores.
/// - Clients weigh their samples; the paper weighs them equally (weighting = uniform).
/// - Only drawn clients train. In the authors' program all do (training = all), so that each one's
///   own model is of the last round, and those that are drawn are averaged.
///
/// The authors' program has a weight decay of .001 on theta (train.weight_decay), and batch norm's
/// statistics stay with its clients (train.buffers = local): configs/authors/pfedme.ini.
class PFedMe final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Restart { Round, Step };
  enum class Evaluated { Personal, Local };
  enum class Training { Participants, All };

  /// Trains locally from `received` [C, P] to w_{k,R} and keeps each client's own model.
  Rows client_update(Block& block, const Rows& received);

  double lambda_ = 15;
  double personal_lr_ = 0.09;
  std::int64_t inner_steps_ = 5;
  double beta_ = 1;
  Restart restart_ = Restart::Round;
  Evaluated evaluated_ = Evaluated::Personal;
  Training training_ = Training::Participants;
  AveragingOptions averaging_;

  double outer_lr_ = 0;                  // eta
  std::unique_ptr<RowOptimizer> inner_;  // of theta
  std::unique_ptr<Codec> codec_;         // of uploads
  Rows global_;                          // [1, P]  w
  StoredRows* personal_ = nullptr;       // evaluated model of each client: theta_k, or w_{k,R}
};

}  // namespace fedhpc
