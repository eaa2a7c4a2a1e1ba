#include "fedhpc/algorithms/local_gradient.hpp"

#include <ATen/ops/zeros_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

Rows local_gradient(Block& block, const Rows& start, double eta, double clip_norm) {
  const Layout& layout = *start.layout;
  const Rows models = start.clone();                           // [C, P]  y_r
  const Rows sum{at::zeros_like(start.values), start.layout};  // [C, P]
  block.each_step(Steps::Alike, [&](LocalStep& step) {
    const Rows gradient = step.active({step.gradient(models), start.layout});
    if (clip_norm > 0) clip_(gradient, clip_norm);
    add_columns_(step.active(sum).values, gradient.values, 1, layout, Tag::Trainable);
    add_columns_(step.active(models).values, gradient.values, -eta, layout, Tag::Trainable);
  });
  block.keep_buffers(models);
  add_difference_(sum.values, start.values, models.values, 1 / eta, layout, Tag::Buffer);
  return sum;
}

void require_plain_gradients(OptionSet& options, const std::string& name, const std::string& why,
                             std::function<bool()> needed) {
  const std::string reason = concat("algorithm.name = ", name, ", ", why,
                                    " for plain SGD at one rate only; use train.optimizer = sgd "
                                    "without momentum and weight decay, and "
                                    "train.lr_unit = round");
  options.add_check([reason, needed = std::move(needed)](const OptionSet& given) {
    if (needed && !needed()) return;
    for (const char* key : {"train.optimizer", "train.momentum", "train.nesterov",
                            "train.weight_decay", "train.lr_unit"}) {
      given.refuse_unless_default(key, reason);
    }
  });
}

}  // namespace fedhpc
