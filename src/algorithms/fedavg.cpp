#include "fedhpc/algorithms/fedavg.hpp"

namespace fedhpc {

void FedAvg::declare(OptionSet& options) { averaging_.declare(options); }

void FedAvg::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.make_upload_codec();
}

void FedAvg::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);  // [C, P]  w_k <- w_t
    const Rows trained = block.train(start);     // [C, P]  ClientUpdate(k, w_t)
    update.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
  });
  global_ += update.reduce();  // w_{t+1} <- w_t + sum_k n_k/n (w_k - w_t)
}

void FedAvg::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

void FedAvg::visit_state(StateVisitor& state) { state.rows("global", global_); }

}  // namespace fedhpc
