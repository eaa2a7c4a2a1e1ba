#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"

// The kernels of this room on a device; fedhpc/core/device_kernels.hpp says what all keep.

namespace fedhpc {

/// Softmax cross-entropy as training/loss.hpp has it: loss[c] += the batch's sum; the gradient of
/// the mean where `gradient.data` is not null.
struct DeviceCrossEntropy {
  DType type;
  DeviceStack logits;
  const std::int64_t* labels = nullptr;  ///< [C, B]
  std::int64_t label_stride = 0;
  DeviceStack gradient{};
  double* loss = nullptr;  ///< [C]
};

/// Per sample of one batch: 1 or 0 for correct or not, and the loss.
struct DeviceScore {
  DType type;
  DeviceStack logits;                    ///< of one client
  const std::int64_t* labels = nullptr;  ///< [B]
  double* correct = nullptr;             ///< [B]
  double* loss = nullptr;                ///< [B]
};

/// mu/2 |w - c|^2 + gamma rho log cosh(w / rho) of each weight.
struct DevicePenalty {
  double mu = 0;
  double gamma = 0;
  double rho = 1;
  DeviceColumns centre{};  ///< read where mu is above 0
};

enum class OptimizerKind { Sgd, Momentum, Nesterov, Adam };

/// One step of a row optimizer (training/row_optimizer.hpp) of rows [C, ...] in some ranges of
/// columns, on gradients g, or 0 where `g.data` is null, plus the penalty's.
struct DeviceStep {
  DType type;
  OptimizerKind rule = OptimizerKind::Sgd;
  std::int64_t rows = 0;
  const Range* ranges = nullptr;  ///< [range_count]
  std::int64_t range_count = 0;
  std::int64_t columns = 0;  ///< P
  DeviceColumns w;
  DeviceColumns g{};
  DeviceColumns states[2]{};
  const double* lr = nullptr;  ///< one number
  double momentum = 0;
  double weight_decay = 0;
  DevicePenalty penalty{};
  /// [C, 2] of Adam, see DeviceAdamCount
  const double* corrections = nullptr;
};

/// Counts a step of Adam for each row: steps[c] += 1, and corrections[c] become those of the step
/// to come, t = steps[c] + 1: 1 - beta1^t and 1 / sqrt(1 - beta2^t).
struct DeviceAdamCount {
  std::int64_t rows = 0;
  std::int64_t* steps = nullptr;  ///< [C]
  double* corrections = nullptr;  ///< [C, 2]
};

/// g += the penalty's gradient at w.
struct DevicePenaltyGradient {
  DType type;
  std::int64_t rows = 0;
  const Range* ranges = nullptr;
  std::int64_t range_count = 0;
  std::int64_t columns = 0;
  DeviceColumns g;
  DeviceColumns w;
  DevicePenalty penalty;
};

/// Losses, penalties and steps on a device.
class TrainingKernels {
 public:
  virtual ~TrainingKernels() = default;

  virtual void cross_entropy(const DeviceCrossEntropy&) = 0;
  virtual void score(const DeviceScore&) = 0;
  virtual void step(const DeviceStep&) = 0;
  virtual void count_adam(const DeviceAdamCount&) = 0;
  virtual void add_penalty_gradient(const DevicePenaltyGradient&) = 0;
};

}  // namespace fedhpc
