#include "fedhpc/algorithms/pfedme.hpp"

namespace fedhpc {

void PFedMe::declare(OptionSet& options) {
  options.add("algorithm.lambda", lambda_, at_least(0.0),
              "weight of the term lambda/2 ||theta - w||^2 between personal and local model");
  options.add("algorithm.personal_lr", personal_lr_, at_least(0.0),
              "learning rate of the personal model theta (train.lr is that of the local model)");
  options.add("algorithm.inner_steps", inner_steps_, count_from(1),
              "steps on theta with each batch (K)");
  options.add("algorithm.beta", beta_, at_least(0.0),
              "step from the old global model to the mean of the local ones; 1: the mean");
  options.add("algorithm.restart", restart_,
              Names<Restart>{{"round", Restart::Round}, {"step", Restart::Step}},
              "where theta starts: at the global model in every round, or at the local model with "
              "every batch");
  options.add("algorithm.evaluate", evaluated_,
              Names<Evaluated>{{"personal", Evaluated::Personal}, {"local", Evaluated::Local}},
              "a client's own model: theta, or its local model w_{k,R}");
  options
      .add("algorithm.training", training_,
           Names<Training>{{"participants", Training::Participants}, {"all", Training::All}},
           "who receives the global model and trains in a round: those that are drawn, or all "
           "clients, as in the authors' program; those that are drawn alone are averaged")
      .acts(either(unless("topology.participation", "1"), where("train.straggler_work", {"none"})));
  averaging_.declare(options);
}

void PFedMe::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  personal_ = &setup.store().rows("personal", global_);
  outer_lr_ = setup.training().lr;
  inner_ =
      std::make_unique<RowOptimizer>(setup.training().step_rule().at(personal_lr_), global_.layout);
}

void PFedMe::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows received = block.download(global_);      // [C, P]  w_t
    const Rows local = client_update(block, received);  // [C, P]  w_{k,R}
    update.add(block.weights(averaging_.weighting), block.upload(local - received, *codec_));
  });
  if (training_ == Training::All) {
    round.each_absent_block([&](Block& block) { client_update(block, block.download(global_)); });
  }
  const Rows mean = update.reduce();
  scale_columns_(mean, beta_, Tag::Trainable);  // a variance moved beyond the mean may be negative
  global_ += mean;                              // w_{t+1} <- (1 - beta) w_t + beta sum_k p_k w_k
}

Rows PFedMe::client_update(Block& block, const Rows& received) {
  Rows local = received.clone();                        // [C, P]  w_k <- w_t
  const Rows personal = received.clone();               // [C, P]  theta
  block.each_step(Steps::Alike, [&](LocalStep& step) {  // r = 0..R-1, a batch D_k each
    if (restart_ == Restart::Step) {
      copy_columns_(step.active(personal), step.active(local), Tag::Trainable);
    }
    // theta ~ argmin f(theta; D_k) + lambda/2 ||theta - w_k||^2, K steps
    step.minimise_(personal, *inner_, {.mu = lambda_, .centre = local}, {.steps = inner_steps_});
    // w_k <- w_k - eta lambda (w_k - theta)
    step.each_rate([&](std::int64_t first, std::int64_t count, double rate) {
      approach_(local.narrow(first, count), personal.narrow(first, count),
                outer_lr_ * rate * lambda_);
    });
  });
  copy_columns_(local, personal, Tag::Buffer);
  block.keep(*personal_, evaluated_ == Evaluated::Personal ? personal : local);
  block.keep_buffers(local);
  return local;
}

void PFedMe::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(personal_->read(block.clients(), global_)); });
}

void PFedMe::visit_state(StateVisitor& state) { state.rows("global", global_); }

}  // namespace fedhpc
