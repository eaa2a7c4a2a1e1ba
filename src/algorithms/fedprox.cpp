#include "fedhpc/algorithms/fedprox.hpp"

namespace fedhpc {

void FedProx::declare(OptionSet& options) {
  options.add("algorithm.mu", mu_, at_least(0.0),
              "weight of the proximal term mu/2 ||w - w_t||^2; 0 is FedAvg");
  averaging_.declare(options);
  server_.declare(options);
}

void FedProx::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
}

void FedProx::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);  // [C, P]
    // w_k ~ argmin f_k(w) + mu/2 ||w - w_t||^2
    const Rows trained = block.train(start, {.penalty = {.mu = mu_, .centre = start}});  // [C, P]
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
  });
  server_.step_(global_, update.reduce());  // w_{t+1} <- w_t + sum_k n_k/n (w_k - w_t)
}

void FedProx::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

}  // namespace fedhpc
