#include "fedhpc/algorithms/localonly.hpp"

namespace fedhpc {

void LocalOnly::initialise(const Setup& setup) {
  models_ = &setup.store().rows("model", setup.initial_model());
}

void LocalOnly::round(Round& round) {
  round.each_block([&](Block& block) {
    const Rows start = models_->read(block.clients());    // [C, P]  w_k
    models_->write(block.clients(), block.train(start));  // w_k <- SGD on f_k
  });
}

void LocalOnly::evaluate(Evaluation& evaluation) {
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(models_->read(block.clients())); });
}

void LocalOnly::visit_state(StateVisitor&) {}  // all of it lies with the clients

}  // namespace fedhpc
