#pragma once

#include "fedhpc/algorithms/factor_averaging.hpp"

namespace fedhpc {

/// FedLMT: J. Liu, Y. Zhou, D. Wu, M. Hu, M. Guizani, Q. Z. Sheng: "FedLMT: Tackling System
/// Heterogeneity of Federated Learning via Low-Rank Model Training with Theoretical Guarantees",
/// ICML 2024. A model of fixed low rank is trained by federated averaging of its factors. Here it
/// is the baseline of FedMUD, with the same rank on every client. In every factorised layer
///
///   w_k = U_k V_k^T,   U <- sum_k p_k U_k,   V <- sum_k p_k V_k
///
///   paper      code                   meaning
///   U, V       factors_               LAYER.U and LAYER.V of the server
///   r          model.rank, or model.compression
///   (start)    algorithm.init_range   a of U(-a, a), of all first factors; auto: normals that give
///                                     weights the variance 2 / fan_in
///
/// Deviations: the first factors are drawn, U(-a, a) as in the FedMUD paper or normals; the
/// authors' program takes the decomposition of a drawn model. Its penalties and its statistics of
/// batch norm are left out. Its learning rate falls from round to round, by a cosine or a factor:
/// train.lr_schedule = cosine or exponential (configs/authors/fedlmt.ini).
class FedLMT final : public FactorAveraging {
 public:
  FedLMT() : FactorAveraging({"low_rank"}) {}
};

}  // namespace fedhpc
