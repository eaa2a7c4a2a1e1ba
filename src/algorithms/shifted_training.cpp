#include "fedhpc/algorithms/shifted_training.hpp"

#include <ATen/ops/zeros_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

ShiftedTraining::ShiftedTraining(const StepRule& rule, const Rows& model, double mu)
    : part_(model.layout, {.with = Tag::Trainable}),
      rule_(rule),
      clip_norm_(rule.clip_norm),
      mu_(mu) {
  rule_.clip_norm = 0;  // the loss's gradient is clipped here, before the terms come to it
}

Rows ShiftedTraining::train(Block& block, const Rows& start, const Rows& shift, std::int64_t count,
                            const Codec* codec) const {
  const Layout& layout = *start.layout;
  const Rows local = start.clone();  // [C, P]
  Rows term = shift;                 // [C, P]  what every gradient is moved by
  if (!part_.is_whole()) {
    term = {at::zeros_like(start.values), start.layout};
    part_.put_(term, shift);
  }
  RowOptimizer optimizer(rule_, start.layout);
  optimizer.reset(local.values);
  const auto take = [&](LocalStep& step) {
    const Rows seen = codec == nullptr ? local : block.compressed(local, *codec, step.number());
    const Rows gradient{step.gradient(seen), start.layout};
    if (codec != nullptr) copy_columns_(step.active(local), step.active(seen), Tag::Buffer);
    const Rows moved = step.active(gradient);
    if (clip_norm_ > 0) clip_(moved, clip_norm_);
    add_columns_(moved.values, step.active(term).values, 1, layout, Tag::Trainable);
    if (mu_ != 0) {
      add_difference_(moved.values, step.active(local).values, step.active(start).values, mu_,
                      layout, Tag::Trainable);
    }
    step.step_(local.values, gradient.values, optimizer);
  };
  block.each_step(codec == nullptr ? Steps::Alike : Steps::Any, take, {}, count);
  return local;
}

}  // namespace fedhpc
