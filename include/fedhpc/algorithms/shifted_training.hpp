#pragma once

#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/block.hpp"
#include "fedhpc/training/row_optimizer.hpp"

namespace fedhpc {

/// Local training on  f_k(w) + <shift_k, w> + mu/2 ||w - start_k||^2: a client's loss with a linear
/// term of its own. SCAFFOLD, FedDyn and FedComLoc share it.
class ShiftedTraining {
 public:
  ShiftedTraining() = default;
  /// By this rule on models like `model` [1, P]. Its clip_norm shortens the loss's gradient alone.
  ShiftedTraining(const StepRule& rule, const Rows& model, double mu);

  /// The trainable columns, in which a shift has its numbers: Q of P.
  const RowPart& part() const { return part_; }
  /// Trains every client from its row of `start` [C, P] with its row of `shift` [C, Q]; returns the
  /// trained rows [C, P]. Takes `count` steps, or with 0 as many as train.* say. With `codec` every
  /// gradient is that at what the codec leaves of the model. Costs a pass over the gradients more
  /// than local training without shift.
  Rows train(Block& block, const Rows& start, const Rows& shift, std::int64_t count = 0,
             const Codec* codec = nullptr) const;

 private:
  RowPart part_;
  StepRule rule_;
  double clip_norm_ = 0;
  double mu_ = 0;
};

}  // namespace fedhpc
