#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"
#include "fedhpc/factorisations/factor_map.hpp"

namespace fedhpc {

/// FedDecomp: every weight is the sum of a shared one and of a client's own. The own ones of a
/// layer are a matrix of low rank.
///
/// X. Wu, X. Liu, J. Niu, H. Wang, S. Tang, G. Zhu, H. Su: "Decoupling General and Personalized
/// Knowledge in Federated Learning via Additive and Low-Rank Decomposition", ACM MM 2024.
///
///   w_k = sigma + tau_k,   tau_k = B_k A_k in linear and convolutional layers
///
///   tau_k   <- local training of A_k, B_k with sigma frozen
///   sigma_k <- local training from sigma with tau_k frozen           sent
///   sigma   <- sigma + sum_k p_k (sigma_k - sigma)
///
///   paper     code                        meaning; limit case
///   sigma     global_                     shared weights, of full rank
///   A_k, B_k  own_; LAYER.lora_A [r, in], LAYER.lora_B [out, r]: they stay with client k
///   r         model.rank or model.compression
///   a         algorithm.init_range        A_k starts at U(-a, a) / sqrt(in), B_k at 0
///             algorithm.personal_passes   local trainings of tau_k; 0, with shared_passes = 1:
///                                         FedAvg, bit for bit
///             algorithm.shared_passes     those of sigma_k that follow, on new batches every time
///
/// An optimizer lives as long as the passes of one part. A_k starts at U(-a, a) / sqrt(in) with
/// a = algorithm.init_range, the same for all clients; B_k starts at 0. /model/global holds sigma,
/// which has the series global_*. A client's own model is sigma + tau_k. Batch norm's statistics
/// are shared, and stay while tau_k is trained. train_loss is that of both parts.
///
/// Readings, and the authors' program (docs/methods/feddecomp.md):
/// - Weight decay acts on A_k and B_k, and then on the whole weights w_k.
/// - Participants are averaged, by algorithm.weighting; in the program all clients are, equally.
class FedDecomp final : public Algorithm {
 public:
  Traits traits() const override;
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  std::vector<NamedTensor> drawn_in(std::int64_t round) const override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  FactorDraw draw() const { return {.range = range_, .like_layers = true, .zero = true}; }
  /// Trains A_k and B_k [C, Q] with sigma, as `shared` [C, P] has it, frozen.
  Rows train_personal(Block& block, const Rows& shared) const;
  /// Trains w_k from `start` [C, P] in all columns, of which sigma_k moves.
  Rows train_shared(Block& block, const Rows& start) const;

  std::int64_t personal_passes_ = 2;
  std::int64_t shared_passes_ = 3;
  double range_ = 1;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;    // of uploads
  FactorMap* own_parts_ = nullptr;  // A_k, B_k -> tau_k
  Rows global_;                     // [1, P]
  StoredRows* own_ = nullptr;       // [clients of this rank, Q]
};

}  // namespace fedhpc
