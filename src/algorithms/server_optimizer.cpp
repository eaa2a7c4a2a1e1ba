#include "fedhpc/algorithms/server_optimizer.hpp"

#include <ATen/ops/empty_like.h>

namespace fedhpc {

void ServerOptimizer::declare(OptionSet& options) {
  options.add("server.optimizer", kind_,
              Names<Kind>{{"sgd", Kind::Sgd},
                          {"momentum", Kind::Momentum},
                          {"adagrad", Kind::Adagrad},
                          {"adam", Kind::Adam},
                          {"yogi", Kind::Yogi}},
              "the server's step along the clients' mean update: as it is, or as FedAvgM, "
              "FedAdagrad, FedAdam and FedYogi take it");
  options.add_or_auto("server.lr", lr_, at_least(0.0),
                      "rate eta of the server's step; auto: 1, which with sgd is the mean of the "
                      "models, and 0.01 with adagrad, adam and yogi");
  options
      .add("server.momentum", momentum_, from_below(0.0, 1.0),
           "share beta of the last step that goes on")
      .acts(where("server.optimizer", {"momentum"}));
  const Condition adaptive = where("server.optimizer", {"adagrad", "adam", "yogi"});
  options
      .add("server.beta1", beta1_, from_below(0.0, 1.0),
           "how much of the mean update of earlier rounds stays in the step")
      .acts(adaptive);
  options
      .add("server.beta2", beta2_, from_below(0.0, 1.0),
           "how much of the squares of earlier updates stays in the accumulator")
      .acts(where("server.optimizer", {"adam", "yogi"}));
  options
      .add("server.eps", eps_, above(0.0),
           "tau: added to the accumulator's root, which starts at it; small values adapt more")
      .acts(adaptive);
}

void ServerOptimizer::start(const Rows& model) {
  if (kind_ == Kind::Sgd) return;
  mean_ = {at::empty_like(model.values), model.layout};
  if (adapts()) accumulator_ = {at::empty_like(model.values), model.layout};
  forget_(model.layout->fields());
}

void ServerOptimizer::forget_(std::span<const Field> fields) {
  if (kind_ == Kind::Sgd) return;
  for (const Field& field : fields) {
    mean_.values.narrow(1, field.offset, field.size).zero_();
    if (adapts()) accumulator_.values.narrow(1, field.offset, field.size).fill_(eps_ * eps_);
  }
}

void ServerOptimizer::step_(Rows& model, const Rows& update) {
  if (kind_ == Kind::Sgd && rate() == 1) {
    model += update;
    return;
  }
  const Tensor square = adapts() ? update.values.mul(update.values) : Tensor();
  Tensor& v = accumulator_.values;
  // Products and sums one by one: fused ones round apart in the middle and at the end of a row.
  if (kind_ == Kind::Momentum) mean_.values.mul_(momentum_).add_(update.values);
  if (adapts()) mean_.values.mul_(beta1_).add_(update.values.mul(1 - beta1_));
  if (kind_ == Kind::Adagrad) v.add_(square);
  if (kind_ == Kind::Adam) v.mul_(beta2_).add_(square.mul(1 - beta2_));
  if (kind_ == Kind::Yogi) v.sub_(v.sub(square).sign_().mul_(square).mul_(1 - beta2_));
  const Rows step = direction(update);
  scale_columns_(step, rate(), Tag::Trainable);
  copy_columns_(step, update, Tag::Buffer);
  model += step;
}

Rows ServerOptimizer::direction(const Rows& update) const {
  if (kind_ == Kind::Sgd) return update.clone();
  if (kind_ == Kind::Momentum) return mean_.clone();
  return {mean_.values.div(accumulator_.values.sqrt().add_(eps_)), mean_.layout};
}

void ServerOptimizer::visit_state(StateVisitor& state) {
  if (kind_ != Kind::Sgd) state.rows("server_mean", mean_);
  if (adapts()) state.rows("server_accumulator", accumulator_);
}

}  // namespace fedhpc
