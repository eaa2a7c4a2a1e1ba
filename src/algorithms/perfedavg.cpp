#include "fedhpc/algorithms/perfedavg.hpp"

#include <ATen/ops/empty_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

// Draws of a step.
constexpr std::int64_t kOuter = 1;      // D'
constexpr std::int64_t kCurvature = 2;  // D''

}  // namespace

void PerFedAvg::declare(OptionSet& options) {
  options.add("algorithm.inner_lr", inner_lr_, at_least(0.0),
              "step size alpha of the adaptation to a client's data (train.lr is beta, that of the "
              "model to be adapted)");
  options.add("algorithm.variant", variant_,
              Names<Variant>{{"fo", Variant::FirstOrder}, {"hf", Variant::HessianFree}},
              "what stands for the Hessian: nothing (fo), or a difference of gradients (hf)");
  options
      .add("algorithm.delta", delta_, above(0.0),
           "length of the difference step of hf over 1 + ||w||")
      .acts(where("algorithm.variant", {"hf"}));
  averaging_.declare(options);
  server_.declare(options);
}

void PerFedAvg::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  inner_ = std::make_unique<RowOptimizer>(StepRule{.kind = OptimizerKind::Sgd, .lr = inner_lr_},
                                          global_.layout);
  outer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), global_.layout);
}

void PerFedAvg::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);        // [C, P]  w_k
    const Rows trained = client_update(block, start);  // [C, P]  w_{k+1,tau}
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
  });
  server_.step_(global_, update.reduce());  // w_{k+1} <- w_k + sum_i p_i (w_{k+1,tau} - w_k)
}

Rows PerFedAvg::client_update(Block& block, const Rows& start) {
  const auto rows = [&] { return Rows{at::empty_like(start.values), start.layout}; };
  const bool curved = variant_ == Variant::HessianFree && inner_lr_ > 0;
  const Clients all{.local = start.clone(),
                    .adapted = rows(),
                    .direction = curved ? rows() : Rows{},
                    .ahead = curved ? rows() : Rows{}};
  outer_->reset(start.values);
  block.each_step(Steps::Alike, [&](LocalStep& step) {  // t = 1..tau
    // w_hat <- w - alpha grad f(w; D)
    const Tensor first = step.gradient(all.local);
    all.adapted.values.copy_(all.local.values);
    const Rows moved = step.active(all.adapted);
    add_columns_(moved.values, first.narrow(0, 0, moved.count()), -inner_lr_, *moved.layout,
                 Tag::Trainable);
    // w <- w - beta (I - alpha H(w; D'')) grad f(w_hat; D')
    Tensor direction = step.gradient(all.adapted, {}, kOuter);
    if (curved) {
      all.direction.values.copy_(direction);
      subtract_curvature_(step, all);
      direction = all.direction.values;
    }
    step.step_(all.local.values, direction, *outer_);
  });
  return all.local;
}

void PerFedAvg::subtract_curvature_(LocalStep& step, const Clients& all) const {
  const Rows v = step.active(all.direction);
  const Rows w = step.active(all.local);
  const RowNumbers length = sqrt(squared_lengths(v));  // ||v||
  // h v has the length delta (1 + ||w||); H v = 0 where v = 0
  const RowNumbers h = where_positive(length, delta_ * (1 + sqrt(squared_lengths(w))) / length);
  const auto gradient_at = [&](double sign) {  // grad f(w + sign h v; D'')
    all.adapted.values.copy_(all.local.values);
    add_columns_(step.active(all.adapted), sign * h, v, Tag::Trainable);
    return step.gradient(all.adapted, {}, kCurvature);
  };
  all.ahead.values.copy_(gradient_at(1));
  const Rows behind{gradient_at(-1).narrow(0, 0, v.count()), v.layout};
  // v <- v - alpha (grad f(w + h v) - grad f(w - h v)) / 2h
  const RowNumbers share = where_positive(h, -inner_lr_ / (2 * h));
  add_difference_(v, share, step.active(all.ahead), behind, Tag::Trainable);
}

void PerFedAvg::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(block.adapt(global_, 1, *inner_)); });
}

}  // namespace fedhpc
