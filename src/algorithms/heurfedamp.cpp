#include "fedhpc/algorithms/heurfedamp.hpp"

#include <limits>

namespace fedhpc {

void HeurFedAMP::declare(OptionSet& options) {
  options
      .add("algorithm.sigma", sigma_, at_least(0.0),
           "sharpness of the weights exp(sigma cos(w_i, w_j)); 0: all others weigh the same")
      .acts(unless("algorithm.alpha", "1"));
  options.add("algorithm.alpha", alpha_, between(0.0, 1.0),
              "weight of a client's own model in its message; 1: models do not meet");
  passing_.declare(options);
}

void HeurFedAMP::round(Round& round) {
  passing_.round(round, [&](const Coupling& clients, const Rows& models) {
    const Tensor weights =  // [N, N]
        clients.cosines(models, models.layout->ranges(Tag::Trainable)).mul_(sigma_);
    if (clients.count() == 1) return weights.zero_();  // nobody else
    // xi_ij = (1 - alpha) exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h))
    // A model that is not finite has no cosine, and is nobody's neighbour.
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    weights.masked_fill_(weights.isfinite().logical_not(), kNone).diagonal().fill_(kNone);
    return weights.softmax(1).nan_to_num_(0).mul_(1 - alpha_);
  });
}

}  // namespace fedhpc
