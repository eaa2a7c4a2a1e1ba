#include "fedhpc/algorithms/ditto.hpp"

namespace fedhpc {

void Ditto::declare(OptionSet& options) {
  options.add("algorithm.mu", mu_, at_least(0.0),
              "weight of the term mu/2 ||v - w_t||^2 between personal and global model (lambda of "
              "the paper); 0 leaves every client alone");
  averaging_.declare(options);
  server_.declare(options);
}

void Ditto::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  personal_ = &setup.store().rows("personal", global_);
}

void Ditto::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);  // [C, P]  w^t
    update.add(block.weights(averaging_.weighting), common_update(block, start));
    // v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w^t)), on the same batches
    const Rows personal = personal_->read(block.clients());  // [C, P]
    block.keep(*personal_,
               block.train(personal, {.pass = 0, .penalty = {.mu = mu_, .centre = start}}));
  });
  server_.step_(global_, update.reduce());  // w^{t+1} <- w^t + sum_k p_k (w_k^t - w^t)
}

Rows Ditto::common_update(Block& block, const Rows& start) const {
  const Rows trained = block.train(start, {.pass = 0});  // w_k^t <- Solver(F_k, w^t)
  block.keep_buffers(trained);
  return block.upload(trained - start, *codec_);
}

void Ditto::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(personal_->read(block.clients())); });
}

}  // namespace fedhpc
