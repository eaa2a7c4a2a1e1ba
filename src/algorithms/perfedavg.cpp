#include "fedhpc/algorithms/perfedavg.hpp"

#include <cmath>

#include <ATen/ops/empty_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"
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
}

void PerFedAvg::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.make_upload_codec();
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
  global_ += update.reduce();  // w_{k+1} <- w_k + sum_i p_i (w_{k+1,tau} - w_k)
}

Rows PerFedAvg::client_update(Block& block, const Rows& start) {
  const auto rows = [&] { return Rows{at::empty_like(start.values), start.layout}; };
  const bool curved = variant_ == Variant::HessianFree && inner_lr_ > 0;
  const Clients all{.local = start.clone(),
                    .adapted = rows(),
                    .direction = curved ? rows() : Rows{},
                    .ahead = curved ? rows() : Rows{}};
  outer_->reset(block.count(), start.values.options());
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

void PerFedAvg::subtract_curvature_on_device_(LocalStep& step, const Clients& all) const {
  // Lengths stay on the device, so that the host need not wait for them.
  const auto trainable = all.local.layout->ranges(Tag::Trainable);
  const auto part = [&](const Tensor& rows, const Range& range) {
    return rows.narrow(0, 0, step.active()).narrow(1, range.first, range.size());
  };
  const auto squares = [&](const Rows& rows) {
    return row_products_on_device(step.active(rows).values, {}, trainable).view({-1, 1});
  };
  const Tensor v = squares(all.direction);
  const Tensor w = squares(all.local);
  const Tensor still = v.gt(0).logical_not();
  const Tensor h = w.sqrt().add(1).mul(delta_).div(v.sqrt()).masked_fill_(still, 0);
  const Tensor share = h.reciprocal().mul(-inner_lr_ / 2).masked_fill_(still, 0);
  const at::ScalarType type = all.local.values.scalar_type();
  const auto gradient_at = [&](double sign) {
    all.adapted.values.copy_(all.local.values);
    const Tensor lengths = h.mul(sign).to(type);
    for (const Range& range : trainable) {
      part(all.adapted.values, range).add_(part(all.direction.values, range).mul(lengths));
    }
    return step.gradient(all.adapted, {}, kCurvature);
  };
  all.ahead.values.copy_(gradient_at(1));
  const Tensor behind = gradient_at(-1);
  const Tensor shares = share.to(type);
  for (const Range& range : trainable) {
    const Tensor difference = part(all.ahead.values, range).sub(part(behind, range));
    part(all.direction.values, range).add_(difference.mul_(shares));
  }
}

void PerFedAvg::subtract_curvature_(LocalStep& step, const Clients& all) const {
  if (on_device(all.local.values)) return subtract_curvature_on_device_(step, all);
  const Layout& layout = *all.local.layout;
  const auto row = [](const Rows& rows, std::int64_t c) { return rows.values.narrow(0, c, 1); };
  const std::vector<double> v = squared_lengths(step.active(all.direction));
  const std::vector<double> w = squared_lengths(step.active(all.local));
  std::vector<double> h;  // h v has the length delta (1 + ||w||)
  for (std::size_t c = 0; c < v.size(); ++c) {
    h.push_back(v[c] > 0 ? delta_ * (1 + std::sqrt(w[c])) / std::sqrt(v[c]) : 0);
  }
  const auto gradient_at = [&](double sign) {  // grad f(w + sign h v; D'')
    all.adapted.values.copy_(all.local.values);
    for (std::int64_t c = 0; c < step.active(); ++c) {
      add_columns_(row(all.adapted, c), row(all.direction, c), sign * h[c], layout, Tag::Trainable);
    }
    return step.gradient(all.adapted, {}, kCurvature);
  };
  all.ahead.values.copy_(gradient_at(1));
  const Tensor behind = gradient_at(-1);
  for (std::int64_t c = 0; c < step.active(); ++c) {
    if (h[c] == 0) continue;  // v = 0, and so is H v
    add_difference_(row(all.direction, c), row(all.ahead, c), behind.narrow(0, c, 1),
                    -inner_lr_ / (2 * h[c]), layout, Tag::Trainable);
  }
}

void PerFedAvg::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(block.adapt(global_, 1, *inner_)); });
}

void PerFedAvg::visit_state(StateVisitor& state) { state.rows("global", global_); }

}  // namespace fedhpc
