#include "fedhpc/algorithms/fedavg.hpp"

namespace fedhpc {

void FedAvg::declare(OptionSet& options) { declare_weighting(options, weighting_); }

void FedAvg::initialise(const Setup& setup) { global_ = setup.initial_model(); }

void FedAvg::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);  // [C, P]  w_k <- w_t
    const Rows trained = block.train(start);     // [C, P]  ClientUpdate(k, w_t)
    update.add(block.weights(weighting_), block.upload(trained - start));
  });
  global_ += update.reduce();  // w_{t+1} <- w_t + sum_k n_k/n (w_k - w_t)
}

void FedAvg::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

}  // namespace fedhpc
