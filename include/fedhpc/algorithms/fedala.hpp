#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// FedALA: a client takes of the global model's top layers, element by element, as much as helps on
/// its own data.
///
/// J. Zhang, Y. Hua, H. Wang, T. Song, Z. Xue, R. Ma, H. Guan: "FedALA: Adaptive Local Aggregation
/// for Personalized Federated Learning", AAAI 2023, Algorithm 1. Per participant i of a round:
///
///   hat_i   = Theta_i + (Theta - Theta_i) (.) W_i     top layers (4); Theta in those below
///   W_i    <- clip(W_i - eta grad_W L_i(hat_i), 0, 1)  (5), (6), batch by batch on s % of its data
///   Theta_i <- local training from hat_i               sent
///   Theta   = sum_i p_i Theta_i                        p_i by samples
///
///   paper     code                     range; limit case
///   Theta     global_                  global model
///   Theta_i   local_ [q]               local model after training; of its top layers, which is all
///                                      that is used again
///   hat_i     start                    what local training starts from: the client's own model
///   W_i       weights_ [q]             all 1 at first; grad_W is grad_hat_i (.) (Theta - Theta_i)
///   eta       algorithm.weight_lr      at least 0; 0: W stays 1, and the rounds are FedAvg's
///   s         algorithm.share          above 0, up to 1; a pass sees max(1, floor(s n + 1/2)) of a
///                                      client's n samples, of a slice max(1, floor(s n))
///             algorithm.samples        drawn: anew in every pass; slice: neighbours, see below
///   p         algorithm.layers         at least 1; large: all layers; 1 costs less, as no
///                                      gradient is taken below
///   (who)     algorithm.learn          participants, or all clients from round 2 on
///   (until)   algorithm.start_rule     change or losses: what tells that W has converged
///             algorithm.tolerance      what it is compared with
///             algorithm.start_passes   passes of the first time at most
///
/// The first time a client learns W it makes passes until W has converged, later one a round.
///
/// Readings, and deviations:
/// - W has converged once a pass moves it by no more than algorithm.tolerance in the root mean
///   square, or after algorithm.start_passes: the text does not say when. The authors' program
///   stops after more than 10 passes once the standard deviation of the last batch's loss over 10
///   of them is below .1: algorithm.start_rule = losses. With eta = 1 weights go on for hundreds of
///   passes, to little effect: with configs/algorithms/fedala.ini clients' own models come
///   to 94.0, 94.5, 94.3 and 94.7 % after 3, 20, 100 and 1000 of them.
/// - A client that takes part for the first time takes Theta as it is; the second time it learns W
///   until convergence. With all clients in every round these are t = 1 and t = 2 of Algorithm 1,
///   whose other clients compare Theta with a model that nobody has trained.
/// - Only participants learn W. In the authors' program all clients do from round 2 on, and hat_i
///   becomes the local model of those that are absent: algorithm.learn = all. An absent client
///   then receives Theta, and takes time. From then on reception_accuracy is over all clients, as
///   what the authors' program prints.
/// - Their s % are neighbours in stored order, the same in all passes of a round:
///   algorithm.samples = slice. configs/authors/fedala.ini has all of theirs.
/// - A layer is what first_of_top counts (models/layout.hpp), with its bias and the batch norm
///   behind it. Running statistics are always Theta's; in the authors' program they never leave a
///   client.
/// - A client's own model is scored as it would be received: hat_i of the new Theta, with W_i as
///   learned last. What participants had in hand at the round's reception, with W_i learned on it,
///   is the series reception_accuracy.
/// - train_loss is that of local training alone, whose batches are those of pass 0. The n-th pass
///   for W has those of pass n.
class FedALA final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  /// Some clients, mixed between their own models and the one they have received.
  struct Mixture {
    Rows model;     // [C, P]  hat_i
    Tensor global;  // [C, q]  Theta
    Tensor apart;   // [C, q]  Theta_i - Theta
    Rows weights;   // [C, q]  W_i
  };

  /// Prepares the mixture of some clients. They have received `model` [C, P]; it becomes hat_i.
  Mixture mixture_of(std::span<const std::int64_t> clients, Rows model) const;
  /// model <- (4).
  void mix_(const Mixture& mixture) const;
  /// Makes one pass of (5) and (6); returns the mean loss of the first client's last batch.
  double learn_(Block& block, const Mixture& mixture, std::int64_t pass) const;
  /// True if weights that came from `before` have converged, after passes with these losses.
  bool converged(const Rows& before, const Rows& weights, std::span<const double> losses) const;
  /// Makes passes until the block's only client's weights have converged; returns their number.
  std::int64_t learn_to_convergence_(Block& block, const Mixture& mixture) const;
  /// True if a client learns weights in this round.
  bool learns(const Block& block, std::int64_t client) const;
  /// Returns hat_i of every client of the block [C, P], with its weights learned.
  Rows aggregated(Block& block, const Rows& received);

  enum class Learn { Participants, All };
  enum class StartRule { Change, Losses };

  std::int64_t layers_ = 1;
  double share_ = 0.8;
  Sampled sampled_ = Sampled::Drawn;
  Learn learn_who_ = Learn::Participants;
  StartRule start_rule_ = StartRule::Change;
  double weight_lr_ = 1;
  std::int64_t start_passes_ = 20;
  double tolerance_ = 0.001;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  RowPart top_;
  Columns moved_;                  // hold all of the top layers that gradients move
  Rows global_;                    // [1, P]
  StoredRows* local_ = nullptr;    // [clients of this rank, q]
  StoredRows* weights_ = nullptr;  // [clients of this rank, q]
};

}  // namespace fedhpc
