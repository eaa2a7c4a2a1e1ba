#include "fedhpc/algorithms/heurfedamp.hpp"

#include <limits>

namespace fedhpc {

namespace {

/// <w_i, w_j> / (||w_i|| ||w_j||) from all inner products, [N, N]; 0 where a norm is.
Tensor cosines(const Tensor& dots) {
  const Tensor norms = dots.diagonal().sqrt();                       // [N]
  const Tensor scales = norms.unsqueeze(1).mul(norms.unsqueeze(0));  // [N, N]
  return dots.div(scales.masked_fill(scales.eq(0), 1));
}

}  // namespace

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
        cosines(clients.dots(models, models, models.layout->ranges(Tag::Trainable))).mul_(sigma_);
    if (clients.count() == 1) return weights.zero_();  // nobody else
    // xi_ij = (1 - alpha) exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h))
    weights.diagonal().fill_(-std::numeric_limits<double>::infinity());
    return weights.softmax(1).mul_(1 - alpha_);
  });
}

}  // namespace fedhpc
