#include "fedhpc/algorithms/dsgd.hpp"

#include "fedhpc/algorithms/local_gradient.hpp"

namespace fedhpc {

void Dsgd::declare(OptionSet& options) {
  averaging_.declare(options);
  require_plain_gradients(options, "dsgd");
}

void Dsgd::initialise(const Setup& setup) {
  x_ = setup.initial_model();
  eta_ = setup.training().lr;
  clip_norm_ = setup.training().clip_norm;
  codec_ = averaging_.links.open(setup, x_);
}

void Dsgd::round(Round& round) {
  const double eta = eta_ * round.lr_factor();
  Mean mean = round.mean();
  round.each_block([&](Block& block) {
    const Rows gradients =
        local_gradient(block, block.download(x_), eta, clip_norm_);  // [C, P]  g^(n)
    mean.add(block.weights(averaging_.weighting), block.upload(gradients, *codec_));
  });
  x_ += -eta * mean.reduce();  // x_{t+1} <- x_t - eta_t (1/N) sum_n g^(n)
}

}  // namespace fedhpc
