#include "fedhpc/algorithms/fedamp.hpp"

namespace fedhpc {

void FedAMP::declare(OptionSet& options) {
  options
      .add("algorithm.sigma", sigma_, above(0.0),
           "scale of the attention A(x) = 1 - exp(-x / sigma) of squared distances")
      .acts(unless("algorithm.alpha_k", "0"));
  options.add("algorithm.alpha_k", alpha_k_, at_least(0.0),
              "step of the server on the attention term; 0: models do not meet");
  options
      .add("algorithm.own_weight", own_weight_,
           Names<OwnWeight>{{"clamp", OwnWeight::Clamp}, {"any", OwnWeight::Any}},
           "weight xi_ii of a client's own model in its message. clamp: at least 0, others that "
           "are more than 1 together are scaled down to 1; any: 1 less the others, below 0 where "
           "they are more than 1, as in public programs")
      .acts(unless("algorithm.alpha_k", "0"));
  passing_.declare(options);
}

void FedAMP::round(Round& round) {
  passing_.round(round, [&](const Coupling& clients, const Rows& models) {
    const Tensor distances =
        clients.squared_distances(models, models, models.layout->ranges(Tag::Trainable));
    // xi_ij = alpha_k / sigma exp(-||w_i - w_j||^2 / sigma), j != i
    // A model that is not finite is far from all others.
    const Tensor weights =  // [N, N]
        distances.div(-sigma_).exp_().nan_to_num_(0).mul_(alpha_k_ / sigma_);
    weights.diagonal().zero_();
    if (own_weight_ == OwnWeight::Any) return weights;
    return weights.div_(weights.sum(1, /*keepdim=*/true).clamp_min_(1));  // xi_ii >= 0
  });
}

}  // namespace fedhpc
