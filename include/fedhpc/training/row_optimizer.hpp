#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/models/layout.hpp"
#include "fedhpc/training/device_constants.hpp"
#include "fedhpc/training/device_kernels.hpp"

namespace fedhpc {

/// The rule of a row optimizer's step.
struct StepRule {
  OptimizerKind kind = OptimizerKind::Sgd;
  double lr = 0;             ///< eta; 0: nothing moves
  double momentum = 0;       ///< mu of Momentum and Nesterov, in [0, 1); 0: plain SGD
  double weight_decay = 0;   ///< lambda; 0: none
  bool decay_biases = true;  ///< false: lambda is 0 for biases
  double clip_norm = 0;      ///< the longest gradient by its L2 norm; 0: any
  bool scheduled = false;    ///< lr is train.lr, which follows train.lr_schedule

  /// True for w <- w - eta g, which a gradient product can do by itself.
  bool is_plain() const {
    return kind == OptimizerKind::Sgd && weight_decay == 0 && clip_norm == 0;
  }
  /// This rule at a rate that stays.
  StepRule at(double rate) const {
    StepRule rule = *this;
    rule.lr = rate;
    rule.scheduled = false;
    return rule;
  }
  /// Rows of state a client needs beside its model: 0, 1 (momentum) or 2 (Adam).
  std::int64_t state_rows() const;
};

/// Moves rows against their gradients as one PyTorch optimizer per client does (SGD with dampening
/// 0, Adam with amsgrad off). Every row has a state of its own. With d = g + lambda w and all
/// states 0 before the first step,
///
///   Sgd        w <- w - eta d
///   Momentum   v <- mu v + d,  w <- w - eta v                 (Polyak 1964)
///   Nesterov   v <- mu v + d,  w <- w - eta (d + mu v)        (Sutskever et al., ICML 2013)
///   Adam       m <- b1 m + (1 - b1) d,  s <- b2 s + (1 - b2) d^2,
///              w <- w - eta (m / (1 - b1^t)) / (sqrt(s / (1 - b2^t)) + epsilon)
///                                                             (Kingma and Ba, ICLR 2015)
///
/// with t the steps of this row, b1 = .9, b2 = .999, epsilon = 1e-8. Columns that are not trainable
/// (buffers) stay as they are and their gradients are not read. A row's result depends on that row
/// alone. Movable, not copyable: tensors share their memory.
class RowOptimizer {
 public:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr double kEpsilon = 1e-8;

  /// Moves rows of this layout: whole models (P columns) or their factors (Q).
  RowOptimizer(const StepRule& rule, LayoutPtr layout);
  RowOptimizer(RowOptimizer&&) = default;
  RowOptimizer& operator=(RowOptimizer&&) = default;

  /// Forgets everything and makes room for as many rows as these, [C, P], of their number type and
  /// device, whose states follow each other as they do. It will move only these columns. Costs a
  /// pass over the states, and an allocation only when there were fewer rows before or others.
  void reset(const Tensor& rows, const Columns& columns = {});
  /// Checks that it goes on from the last steps with as many rows and the same columns.
  void go_on(std::int64_t count, const Columns& columns) const;

  /// Moves rows [first, first + count) of `rows` one step, in one pass over them. The others
  /// (clients that have run out of steps) keep their models, states and step numbers. The rule's
  /// rate is multiplied with `rate`. Precondition: reset() for as many rows.
  void step_(const Tensor& rows,       // [C, P]
             const Tensor& gradients,  // [C, P]
             std::int64_t first, std::int64_t count, double rate = 1);
  /// Moves all rows one step, on gradients that are shortened first where the rule says so.
  void step_(const Tensor& rows, const Tensor& gradients);

  /// Shortens the gradients of rows [first, first + count) to the rule's length, over the columns
  /// that move: those of the loss, before penalties are added. Nothing without such a length.
  void clip_(const Tensor& gradients,  // [C, P]
             std::int64_t first, std::int64_t count) const;
  /// The gradients so shortened, in memory of their own where there is a length.
  Tensor clipped(const Tensor& gradients, std::int64_t first, std::int64_t count) const;

  /// The steps of each row since the last reset, [C], and the states that they have left, a copy
  /// [state rows, C, P] in host memory: what the next steps depend on beside the rows. On a device
  /// only Adam's steps are counted.
  std::vector<std::int64_t> steps() const;
  Tensor states() const;
  /// Goes on from such steps and states of as many rows as the last reset was for.
  void go_on_from(const std::vector<std::int64_t>& steps, const Tensor& states);

  const StepRule& rule() const { return rule_; }
  const LayoutPtr& layout() const { return layout_; }
  const Columns& columns() const { return columns_; }
  /// The addresses of the first row's state: none, or those that stay the same after a reset for no
  /// more rows.
  std::vector<const void*> memory() const;

 private:
  template <typename T>
  void step_row(std::int64_t c, const Tensor& rows, const Tensor& gradients, double lr);
  void step_on_device(const Tensor& rows, const Tensor& gradients, std::int64_t first,
                      std::int64_t count, double lr);
  /// Counts a step of some rows on a device.
  void count_adam(std::int64_t first, std::int64_t count) const;

  StepRule rule_;
  LayoutPtr layout_;
  Columns columns_;
  /// Columns that move, and their weight decay.
  struct Decayed {
    ColumnRanges ranges;
    double weight_decay = 0;
  };
  std::vector<Decayed> moving_;
  Tensor state_;                     // [state rows, C, P], undefined without state
  std::vector<std::int64_t> steps_;  // [C] steps each row has taken
  Tensor steps_on_device_;           // [C] int64: the same of Adam on a device
  Tensor corrections_;               // [C, 2] float64, for the step to come: DeviceAdamCount
  DeviceConstants constants_;
};

}  // namespace fedhpc
