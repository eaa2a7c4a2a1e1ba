#pragma once

#include <optional>

#include "fedhpc/algorithms/factor_averaging.hpp"
#include "fedhpc/factorisations/update_map.hpp"

namespace fedhpc {

/// Federated averaging of low-rank adapters of a frozen base model.
///
/// LoRA: E. Hu, Y. Shen, P. Wallis, Z. Allen-Zhu, Y. Li, S. Wang, L. Wang, W. Chen: "LoRA: Low-Rank
/// Adaptation of Large Language Models", ICLR 2022. FedIT, its federated averaging: J. Zhang, S.
/// Vahidian, M. Kuo, C. Li, R. Zhang, T. Yu, Y. Zhou, G. Wang, Y. Chen, "Towards Building the
/// Federated GPT", ICASSP 2024. FFA-LoRA: Y. Sun, Z. Li, Y. Li, B. Ding, "Improving LoRA in
/// Privacy-preserving Federated Learning", ICLR 2024.
///
///   W_k = W_0 + (alpha / r) B_k A_k                        local models, W_0 frozen for ever
///   A <- sum_k p_k A_k, B <- sum_k p_k B_k                 of each by itself
///
///   paper              code
///   W_0                the initial model: model.file or model.init_file
///   r, alpha           model.rank or model.compression, model.lora_alpha
///   a                  algorithm.init_range: A starts at U(-a, a) / sqrt(in), B at 0
///   B A                model.factorisation = lora; A frozen: ffa_lora
///   A, B               LAYER.lora_A [r, in], LAYER.lora_B [out, r]
///   adapted layers     all linear and convolutional ones but model.exclude
///   the rest           algorithm.rest: what of it is trained, and then averaged in full
///
/// A starts at U(-a, a) / sqrt(in), a = algorithm.init_range, where 1 is the start of public code.
/// B starts at 0, so that round 0 is the base. Only trained columns travel; the base and the seed
/// of A lie with the clients before round 1, and count nowhere. Weight decay acts on trained
/// columns. The mean of products is not the product of means: aggregation_gap. With ffa_lora it is,
/// as the adapters are linear in B.
///
/// Limit case: with train.lr = 0 the model stays the base. Deviation: statistics of batch norm stay
/// the base's unless rest = all.
class LoRA final : public FactorAveraging {
 public:
  LoRA() : FactorAveraging({"lora", "ffa_lora"}) {}

  Traits traits() const override;
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  std::vector<NamedTensor> drawn_in(std::int64_t round) const override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Rest { Frozen, Head, All };

  FactorDraw draw() const {
    return {.range = range_, .like_layers = true, .zero = true, .always = true};
  }

  double range_ = 1;
  Rest rest_ = Rest::Head;
  std::uint64_t seed_ = 0;
  std::optional<UpdateMap> adapted_;  // A, B and the rest -> W_0 + (alpha / r) B A
};

}  // namespace fedhpc
