#include "fedhpc/algorithms/apfl.hpp"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kAlpha = "alpha";

/// alpha v + (1 - alpha) w, in a form that is v or w to the last bit in the limits.
Tensor mixed(const Tensor& alpha,                        // [C, 1]
             const Rows& personal, const Rows& local) {  // [C, P]
  return personal.values * alpha + local.values * (1 - alpha);
}

}  // namespace

void APFL::declare(OptionSet& options) {
  options.add(
      "algorithm.alpha", alpha_, between(0.0, 1.0),
      "weight of a client's own model in its mixture with the global one (alpha), at first");
  options.add("algorithm.alpha_rule", alpha_rule_,
              Names<AlphaRule>{{"fixed", AlphaRule::Fixed}, {"adaptive", AlphaRule::Adaptive}},
              "whether that weight stays, or is moved once a round by its gradient");
  averaging_.declare(options);
  server_.declare(options);
}

void APFL::initialise(const Setup& setup) {
  setup.add_metrics(
      {{kAlpha, "1", "mean over participants with samples of the weight alpha after the round"}});
  global_ = setup.initial_model();
  trainable_ = RowPart(global_.layout, {.with = Tag::Trainable});
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  personal_ = &setup.store().rows("personal", global_);
  alphas_ = &setup.store().scalars("alpha", alpha_);
  const StepRule rule = setup.training().step_rule();
  lr_ = rule.lr;
  of_local_ = std::make_unique<RowOptimizer>(rule, global_.layout);
  of_personal_ = std::make_unique<RowOptimizer>(rule, global_.layout);
}

void APFL::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows received = block.download(global_);      // [C, P]  w
    const Rows local = client_update(block, received);  // [C, P]  w_i
    block.keep_buffers(local);
    update.add(block.weights(averaging_.weighting), block.upload(local - received, *codec_));
  });
  server_.step_(global_, update.reduce());  // w <- w + sum_i p_i (w_i - w)
}

Rows APFL::client_update(Block& block, const Rows& received) {
  const Rows local = received.clone();                             // [C, P]  w_i
  const Rows personal = personal_->read(block.clients());          // [C, P]  v_i
  const Rows mixture{at::empty_like(local.values), local.layout};  // [C, P]  vbar_i
  std::vector<double> alphas = alphas_->read(block.clients());
  const Tensor alpha = RowNumbers(alphas).column(local.values);  // [C, 1]
  const bool adaptive = alpha_rule_ == AlphaRule::Adaptive;
  of_local_->reset(local.values);
  of_personal_->reset(personal.values);
  block.each_step(adaptive ? Steps::Any : Steps::Alike, [&](LocalStep& step) {
    const bool adapts = adaptive && step.number() == 0;
    mixture.values.copy_(mixed(alpha, personal, local));
    const Rows apart = adapts ? personal - local : Rows{};
    step.descend_(local, *of_local_);  // w_i <- w_i - eta grad f_i(w_i)
    const Tensor gradient = step.gradient(mixture);
    if (adapts) adapt_(alphas, step, apart, {gradient, local.layout});
    // v_i <- v_i - eta alpha_i grad f_i(vbar_i)
    step.step_(personal.values, gradient.mul_(alpha), *of_personal_);
    if (adapts) alpha.copy_(RowNumbers(alphas).column(local.values));
  });
  copy_columns_(personal, local, Tag::Buffer);
  block.keep(*personal_, personal);
  alphas_->write(block.clients(), alphas);
  block.note(kAlpha, alphas);
  return local;
}

void APFL::adapt_(std::vector<double>& alphas, LocalStep& step, const Rows& apart,
                  const Rows& gradients) const {
  const std::vector<double> slopes =
      inner_products(trainable_.of(step.active(apart)), trainable_.of(step.active(gradients)))
          .ab.values();
  step.each_rate([&](std::int64_t first, std::int64_t count, double rate) {
    for (std::int64_t c = first; c < first + count; ++c) {
      const auto place = static_cast<std::size_t>(c);
      alphas[place] = std::clamp(alphas[place] - lr_ * rate * slopes[place], 0.0, 1.0);
    }
  });
}

void APFL::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block([&](EvaluationBlock& block) {
    const auto count = static_cast<std::int64_t>(block.clients().size());
    const Rows received = block.as_received(global_.replicate(count));
    const Tensor alpha = RowNumbers(alphas_->read(block.clients())).column(received.values);
    block.evaluate({mixed(alpha, personal_->read(block.clients()), received), received.layout});
  });
}

}  // namespace fedhpc
