#pragma once

#include "fedhpc/algorithms/factor_averaging.hpp"

namespace fedhpc {

/// FedPara: N. Hyeon-Woo, M. Ye-Bin, T.-H. Oh: "FedPara: Low-Rank Hadamard Product for
/// Communication-Efficient Federated Learning", ICLR 2022. A model whose layers are elementwise
/// products of two low-rank tensors (Hadamard), trained by federated averaging of the factors.
///
///   W = (X1 Y1^T) (.) (X2 Y2^T)                        fully connected
///   W = (T1 x1 X1 x2 Y1) (.) (T2 x1 X2 x2 Y2)          convolution
///
///   paper             code                   meaning
///   X1, Y1, X2, Y2    factors_               LAYER.X1 and so on, of kernels T1, T2 as well
///   r                 model.rank, or model.compression with model.rank_bound
///   (start)           algorithm.init         weights: normals that give weights the variance
///                                            2 / fan_in; factors: each factor for itself
///                     algorithm.init_range   a of U(-a, a) in their place; auto: normals
///
/// Deviations:
/// - The paper offers tanh for one of the two tensors; here there is none.
/// - Ranks keep to model.compression. The authors' program has a lower bound of ranks
///   (model.rank_bound = full).
/// - First factors give weights the variance 2 / fan_in. The authors' program draws each factor
///   like a layer (algorithm.init = factors), which makes first weights a hundred times smaller.
class FedPara final : public FactorAveraging {
 public:
  FedPara() : FactorAveraging({"hadamard"}) {}

  Traits traits() const override {
    Traits traits = FactorAveraging::traits();
    traits.factor_draw.like_layers = init_ == Init::Factors;
    return traits;
  }
  void declare(OptionSet& options) override {
    FactorAveraging::declare(options);
    options
        .add("algorithm.init", init_,
             Names<Init>{{"weights", Init::Weights}, {"factors", Init::Factors}},
             "what the first factors' normals give the variance 2 / fan_in: the weights, or each "
             "factor for itself, as FedPara's authors have it")
        .acts(where("algorithm.init_range", {"auto"}));
  }

 private:
  enum class Init { Weights, Factors };
  Init init_ = Init::Weights;
};

}  // namespace fedhpc
