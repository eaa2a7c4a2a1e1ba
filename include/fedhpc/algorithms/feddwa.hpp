#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// FedDWA: the server mixes for every client the models that come nearest to where its own is
/// going.
///
/// J. Liu, J. Wu, J. Chen, M. Hu, Y. Zhou, D. Wu: "FedDWA: Personalized Federated Learning with
/// Dynamic Weight Adjustment", IJCAI 2023. Per participant k of a round:
///
///   w_k  <- local training from u_k                 sent
///   w'_k <- another local training from w_k         guidance model, sent as well
///   p_kj  = ||w'_k - w_j||^-2 / sum over participants i of ||w'_k - w_i||^-2,
///           all but the largest K set to 0, the rest scaled to 1 together
///   u_k  <- sum_j p_kj w_j                          at the server, over the round's participants
///
///   paper     code               meaning
///   u_k       clouds_            what client k starts from next time; the initial model at first
///   w_j       models             of the round's participants
///   w'_k      guides             by passes 0 and 1: the guidance training sees new batches
///   K         algorithm.top_k    1: only the nearest one, as a rule the client's own; as many as
///                                participants, or more: all of them
///
/// The server keeps u_k and sends it when client k takes part again. A client's own model, which is
/// scored, is u_k as it would be received. Distances are over the trainable columns; batch-norm
/// statistics are mixed like parameters. Equal weights go to the clients of lower number; a model
/// that is no distance away is taken as one that is 1e-15 away. Clients without training samples do
/// not count and keep their u_k.
class FedDWA final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Personal, .can_leave_rounds = false}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor&) override {}  // all of it lies with the clients

  /// Returns p [S, S] float64 from squared distances ||w'_k - w_j||^2 [S, S].
  static Tensor weights_of(const Tensor& squared_distances, std::int64_t top_k);

 private:
  std::int64_t top_k_ = 5;
  LinkOptions links_;
  std::unique_ptr<Codec> codec_;        // of w_k
  std::unique_ptr<Codec> guide_codec_;  // of w'_k
  StoredRows* clouds_ = nullptr;        // [clients of this rank, P]
};

}  // namespace fedhpc
