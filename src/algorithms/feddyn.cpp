#include "fedhpc/algorithms/feddyn.hpp"

#include <ATen/ops/zeros_like.h>

namespace fedhpc {

void FedDyn::declare(OptionSet& options) {
  options.add("algorithm.alpha", alpha_, above(0.0),
              "weight alpha of alpha/2 ||w - w_t||^2, and of g_k and h, which follow the rounds");
  averaging_.declare(options);
}

void FedDyn::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  training_ = ShiftedTraining(setup.training().step_rule(), global_, alpha_);
  const Rows part = training_.part().of(global_);
  state_ = {at::zeros_like(part.values), part.layout};
  gradients_ = &setup.store().rows("gradient", state_);
}

void FedDyn::round(Round& round) {
  const RowPart& part = training_.part();
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);                      // [C, P]  theta^{t-1}
    const Rows own = gradients_->read(block.clients());              // [C, Q]  g_k
    const Rows trained = training_.train(block, start, -1.0 * own);  // [C, P]  theta_k
    const Rows change = trained - start;
    block.keep_buffers(trained);
    block.keep(*gradients_, own - alpha_ * part.of(change));
    update.add(block.weights(averaging_.weighting), block.upload(change, *codec_));
  });
  const Rows mean = update.reduce();
  const double share = round.share_of_clients();  // |P|/m
  if (share == 0) return;                         // nobody trained
  state_ += (-alpha_ * share) * part.of(mean);
  global_ += mean;
  // theta^t <- mean(theta_k) - h / alpha
  part.put_(global_, part.of(global_) - (1 / alpha_) * state_);
}

void FedDyn::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

void FedDyn::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  state.rows("state", state_);
}

}  // namespace fedhpc
