// train.loss on a device: tensor expressions, none of which waits for it. Sums of a client's losses go
// in the order of its own samples alone, which LibTorch's do not.

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"
#include "fedhpc/math/softmax_lines.hpp"
#include "fedhpc/training/loss.hpp"

namespace fedhpc {

namespace {

/// Each loss of outputs at targets of the same shape.
Tensor each_loss(LossKind kind, const Tensor& outputs, const Tensor& targets) {
  return kind == LossKind::BinaryCrossEntropy
             ? at::binary_cross_entropy_with_logits(outputs, targets, {}, {}, at::Reduction::None)
             : at::mse_loss(outputs, targets, at::Reduction::None);
}

/// The largest logit's place, the lowest where there are several; where the label's is NaN: -1.
Tensor told(const Tensor& logits, const Tensor& labels) {
  const Tensor own = logits.gather(-1, labels.unsqueeze(-1));
  const Tensor above = logits.gt(own).logical_or_(logits.isnan());
  const Tensor first = logits.eq(own).to(at::kByte).argmax(-1);
  return above.any(-1)
      .logical_or_(own.isnan().squeeze(-1))
      .logical_not_()
      .logical_and_(first.eq(labels));
}

}  // namespace

void Loss::take(const Tensor& outputs, const Tensor& targets, const Tensor& gradient,
                const Tensor& sums, const Tensor& counts) const {
  if (is_plain()) {
    softmax_cross_entropy(outputs, targets, gradient, sums);
    return;
  }
  const std::int64_t clients = outputs.size(0);
  const std::int64_t places = outputs.size(1) * places_;
  const at::ScalarType type = outputs.scalar_type();
  if (kind_ != LossKind::CrossEntropy) {
    const Tensor z = outputs.reshape({clients, places});
    const Tensor y = targets.reshape({clients, places}).to(type);
    sums.add_(row_sums_on_device(each_loss(kind_, z, y)).div_(places_));
    if (!gradient.defined()) return;
    const Tensor slope =
        kind_ == LossKind::BinaryCrossEntropy ? z.sigmoid().sub_(y) : z.sub(y).mul_(2);
    gradient.copy_(slope.div_(places).view(gradient.sizes()));
    return;
  }
  const Tensor labels = targets.reshape({clients, places});
  const Tensor ignored = labels.eq(sequences_ ? ignored_ : std::int64_t{-1});
  const Tensor known = labels.masked_fill(ignored, 0).unsqueeze(2);
  const Tensor of_classes =
      log_softmax_on_device(outputs.reshape({clients, places, outputs.size(2) / places_}));
  const double even = smoothing_ / static_cast<double>(of_classes.size(2));
  const Tensor loss = of_classes.gather(2, known).squeeze(2).mul_(smoothing_ - 1);
  if (smoothing_ > 0) {
    const Tensor of_places = row_sums_on_device(of_classes.flatten(0, 1)).mul_(even);
    loss.sub_(of_places.view({clients, places}).to(type));
  }
  sums.add_(row_sums_on_device(loss.masked_fill_(ignored, 0)));
  const Tensor count = ignored.logical_not().sum(1, false, at::kDouble);
  if (counts.defined()) counts.add_(count);
  if (!gradient.defined()) return;
  const Tensor slope = of_classes.exp().sub_(even);
  slope.scatter_add_(2, known, at::full(known.sizes(), smoothing_ - 1, slope.options()));
  slope.mul_(count.clamp_min(1).reciprocal_().to(type).view({clients, 1, 1}));
  gradient.copy_(slope.masked_fill_(ignored.unsqueeze(2), 0).view(gradient.sizes()));
}

void Loss::score(const Tensor& outputs, const Tensor& targets, const Tensor& scores) const {
  if (of_labels()) {
    score_samples(outputs, targets, scores[0], scores[1]);
    return;
  }
  const std::int64_t batch = outputs.size(0);
  const Tensor y = targets.reshape({batch, places_});
  if (kind_ == LossKind::CrossEntropy) {
    const Tensor ignored = y.eq(ignored_);
    const Tensor known = y.masked_fill(ignored, 0);
    const Tensor z = outputs.reshape({batch, places_, outputs.size(1) / places_});
    const Tensor loss = log_softmax_on_device(z).gather(2, known.unsqueeze(2)).squeeze(2).neg_();
    scores[0].copy_(told(z, known).masked_fill_(ignored, false).sum(1));
    scores[1].copy_(row_sums_on_device(loss.masked_fill_(ignored, 0)));
    scores[2].copy_(ignored.logical_not().sum(1));
    return;
  }
  const Tensor number = y.to(outputs.scalar_type());
  scores[1].copy_(row_sums_on_device(each_loss(kind_, outputs, number)).div_(places_));
  if (kind_ == LossKind::MeanSquaredError) {
    scores[0].zero_();
    return;
  }
  const Tensor positive = outputs.gt(0);
  const Tensor bit = y.gt(0);
  scores[0].copy_(positive.eq(bit).logical_and_(outputs.isnan().logical_not_()).all(1));
  scores[2].copy_(positive.logical_and(bit).sum(1));
  scores[3].copy_(positive.sum(1).add_(bit.sum(1)));
}

}  // namespace fedhpc
