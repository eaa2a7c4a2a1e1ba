#include "fedhpc/training/row_optimizer.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/models/row_measures.hpp"
#include "fedhpc/training/device_kernels.hpp"

#include "training/row_memory.hpp"

namespace fedhpc {

namespace {

/// The rule's numbers in the rows' own type, and the columns to go through.
template <typename T>
struct Stretch {
  T* __restrict w;
  const T* __restrict g;
  std::int64_t count;
  T lr;
  T decay;
};

template <typename T>
void sgd(const Stretch<T>& at) {
  for (std::int64_t i = 0; i < at.count; ++i) at.w[i] -= at.lr * (at.g[i] + at.decay * at.w[i]);
}

template <typename T>
void momentum(const Stretch<T>& at, T mu, T* __restrict v) {
  for (std::int64_t i = 0; i < at.count; ++i) {
    v[i] = mu * v[i] + at.g[i] + at.decay * at.w[i];
    at.w[i] -= at.lr * v[i];
  }
}

template <typename T>
void nesterov(const Stretch<T>& at, T mu, T* __restrict v) {
  for (std::int64_t i = 0; i < at.count; ++i) {
    const T d = at.g[i] + at.decay * at.w[i];
    v[i] = mu * v[i] + d;
    at.w[i] -= at.lr * (d + mu * v[i]);
  }
}

/// Adam's corrections of its means, which begin at 0.
struct Corrections {
  static Corrections of_step(std::int64_t number) {
    const auto t = static_cast<double>(number);
    return {1 - std::pow(RowOptimizer::kBeta1, t),
            1 / std::sqrt(1 - std::pow(RowOptimizer::kBeta2, t))};
  }

  double first = 1;
  double root = 1;
};

template <typename T>
void adam(const Stretch<T>& at, const Corrections& of, T* __restrict m, T* __restrict s) {
  constexpr T kBeta1 = static_cast<T>(RowOptimizer::kBeta1);
  constexpr T kBeta2 = static_cast<T>(RowOptimizer::kBeta2);
  constexpr T kRest1 = static_cast<T>(1 - RowOptimizer::kBeta1);
  constexpr T kRest2 = static_cast<T>(1 - RowOptimizer::kBeta2);
  const T rate = static_cast<T>(static_cast<double>(at.lr) / of.first);
  const T root = static_cast<T>(of.root);
  const T epsilon = static_cast<T>(RowOptimizer::kEpsilon);
  for (std::int64_t i = 0; i < at.count; ++i) {
    const T d = at.g[i] + at.decay * at.w[i];
    m[i] = kBeta1 * m[i] + kRest1 * d;
    s[i] = kBeta2 * s[i] + kRest2 * d * d;
    at.w[i] -= rate * m[i] / (std::sqrt(s[i]) * root + epsilon);
  }
}

}  // namespace

std::int64_t StepRule::state_rows() const {
  switch (kind) {
    case OptimizerKind::Sgd:
      return 0;
    case OptimizerKind::Momentum:
    case OptimizerKind::Nesterov:
      return 1;
    case OptimizerKind::Adam:
      return 2;
  }
  throw std::logic_error("an optimizer has a number of state rows");
}

RowOptimizer::RowOptimizer(const StepRule& rule, LayoutPtr layout)
    : rule_(rule), layout_(std::move(layout)) {}

void RowOptimizer::reset(const Tensor& rows, const Columns& columns) {
  require(rows.dim() == 2 && rows.size(1) == layout_->size(),
          "an optimizer is reset for rows of its own layout");
  const std::int64_t count = rows.size(0);
  columns_ = columns;
  if (rule_.decay_biases) {
    moving_ = {{layout_->ranges(Tag::Trainable, columns), rule_.weight_decay}};
  } else {
    const Columns weights{.with = columns.with, .without = columns.without | Tag::Bias};
    moving_ = {{layout_->ranges(Tag::Trainable, weights), rule_.weight_decay},
               {layout_->ranges(Tag::Bias, columns), 0}};
    std::erase_if(moving_, [](const Decayed& part) { return part.ranges.empty(); });
  }
  steps_.assign(static_cast<std::size_t>(count), 0);
  if (rule_.state_rows() == 0) return;
  const std::int64_t stride = stride_beside(rows);
  const bool fits = state_.defined() && state_.size(1) >= count && state_.stride(1) == stride &&
                    state_.scalar_type() == rows.scalar_type();
  if (fits) {
    state_.narrow(1, 0, count).zero_();
  } else {
    state_ = at::zeros({rule_.state_rows(), count, stride}, rows.options())
                 .narrow(2, 0, layout_->size());
  }
  if (rule_.kind != OptimizerKind::Adam || !on_device(state_)) return;
  if (!fits) {
    steps_on_device_ = at::empty({count}, rows.options().dtype(at::kLong));
    corrections_ = at::empty({count, 2}, rows.options().dtype(at::kDouble));
  }
  steps_on_device_.fill_(-1);  // none, once that is counted
  count_adam(0, count);
}

void RowOptimizer::count_adam(std::int64_t first, std::int64_t count) const {
  device_kernels<TrainingKernels>().count_adam(
      {.rows = count,
       .steps = steps_on_device_.data_ptr<std::int64_t>() + first,
       .corrections = corrections_.data_ptr<double>() + 2 * first});
}

void RowOptimizer::go_on(std::int64_t count, const Columns& columns) const {
  require(count == static_cast<std::int64_t>(steps_.size()) && columns.with == columns_.with &&
              columns.without == columns_.without,
          "an optimizer goes on with the rows and columns it has moved");
}

std::vector<std::int64_t> RowOptimizer::steps() const {
  if (!steps_on_device_.defined()) return steps_;
  const Tensor here = on_host(steps_on_device_);
  const auto* first = here.const_data_ptr<std::int64_t>();
  return {first, first + steps_.size()};
}

Tensor RowOptimizer::states() const {
  if (!state_.defined()) return at::empty({0, std::ssize(steps_), layout_->size()}, at::kDouble);
  return on_host(state_.narrow(1, 0, std::ssize(steps_))).clone(at::MemoryFormat::Contiguous);
}

void RowOptimizer::go_on_from(const std::vector<std::int64_t>& steps, const Tensor& states) {
  const std::int64_t count = std::ssize(steps_);
  require(std::ssize(steps) == count && states.size(1) == count &&
              states.size(0) == rule_.state_rows() && states.size(2) == layout_->size(),
          "an optimizer goes on from states of the rows that it was reset for");
  steps_ = steps;
  if (rule_.state_rows() > 0) state_.narrow(1, 0, count).copy_(states);
  if (!steps_on_device_.defined()) return;
  const Tensor before = at::empty({count}, at::kLong);
  std::ranges::transform(steps, before.data_ptr<std::int64_t>(),
                         [](auto taken) { return taken - 1; });
  steps_on_device_.narrow(0, 0, count).copy_(before);
  count_adam(0, count);
}

std::vector<const void*> RowOptimizer::memory() const {
  std::vector<const void*> addresses;
  for (std::int64_t k = 0; k < rule_.state_rows(); ++k) {
    addresses.push_back(state_[k].const_data_ptr());
  }
  for (const Tensor& counted : {steps_on_device_, corrections_}) {
    if (counted.defined()) addresses.push_back(counted.const_data_ptr());
  }
  return addresses;
}

void RowOptimizer::step_on_device(const Tensor& rows, const Tensor& gradients, std::int64_t first,
                                  std::int64_t count, double lr) {
  DeviceStep step{.type = real_of(rows),
                  .rule = rule_.kind,
                  .rows = count,
                  .columns = layout_->size(),
                  .w = device_columns(rows.narrow(0, first, count)),
                  .g = device_columns(gradients.narrow(0, first, count)),
                  .lr = constants_.number(lr, rows.device()),
                  .momentum = rule_.momentum};
  for (std::int64_t k = 0; k < rule_.state_rows(); ++k) {
    step.states[k] = device_columns(state_[k].narrow(0, first, count));
  }
  const bool adam = rule_.kind == OptimizerKind::Adam;
  if (adam) step.corrections = corrections_.const_data_ptr<double>() + 2 * first;
  for (const Decayed& part : moving_) {
    step.ranges = constants_.ranges(part.ranges, rows.device());
    step.range_count = std::ssize(part.ranges);
    step.weight_decay = part.weight_decay;
    device_kernels<TrainingKernels>().step(step);
  }
  if (adam) count_adam(first, count);
}

template <typename T>
void RowOptimizer::step_row(std::int64_t c, const Tensor& rows, const Tensor& gradients,
                            double lr) {
  const std::int64_t t = ++steps_[static_cast<std::size_t>(c)];
  const Corrections corrections =
      rule_.kind == OptimizerKind::Adam ? Corrections::of_step(t) : Corrections{};
  const auto state = [&](std::int64_t k, std::int64_t column) {
    return state_.data_ptr<T>() + k * state_.stride(0) + c * state_.stride(1) + column;
  };
  const auto move = [&](std::int64_t begin, std::int64_t end, double weight_decay) {
    const Stretch<T> at{.w = rows.data_ptr<T>() + c * rows.stride(0) + begin,
                        .g = gradients.const_data_ptr<T>() + c * gradients.stride(0) + begin,
                        .count = end - begin,
                        .lr = static_cast<T>(lr),
                        .decay = static_cast<T>(weight_decay)};
    const T mu = static_cast<T>(rule_.momentum);
    switch (rule_.kind) {
      case OptimizerKind::Sgd:
        sgd(at);
        break;
      case OptimizerKind::Momentum:
        momentum(at, mu, state(0, begin));
        break;
      case OptimizerKind::Nesterov:
        nesterov(at, mu, state(0, begin));
        break;
      case OptimizerKind::Adam:
        adam(at, corrections, state(0, begin), state(1, begin));
        break;
    }
  };
  for (const Decayed& part : moving_) {
    for (const auto& [begin, end] : part.ranges) move(begin, end, part.weight_decay);
  }
}

void RowOptimizer::step_(const Tensor& rows, const Tensor& gradients, std::int64_t first,
                         std::int64_t count, double rate) {
  const std::int64_t columns = layout_->size();
  require(rows.dim() == 2 && rows.size(1) == columns && rows.stride(1) == 1,
          "an optimizer moves rows of its own layout");
  require(gradients.sizes() == rows.sizes() && gradients.stride(1) == 1 &&
              gradients.scalar_type() == rows.scalar_type(),
          "rows and their gradients have one shape and number type");
  require(0 <= first && 0 <= count && first + count <= rows.size(0) &&
              first + count <= static_cast<std::int64_t>(steps_.size()),
          "an optimizer moves rows it was reset for");
  require(!state_.defined() || state_.scalar_type() == rows.scalar_type(),
          "rows and their optimizer's states have one number type");
  const double lr = rule_.lr * rate;
  if (on_device(rows)) return step_on_device(rows, gradients, first, count, lr);
  with_type(rows.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = first; c < first + count; ++c) step_row<T>(c, rows, gradients, lr);
  });
}

void RowOptimizer::step_(const Tensor& rows, const Tensor& gradients) {
  step_(rows, clipped(gradients, 0, rows.size(0)), 0, rows.size(0));
}

void RowOptimizer::clip_(const Tensor& gradients, std::int64_t first, std::int64_t count) const {
  if (rule_.clip_norm == 0) return;
  fedhpc::clip_({gradients.narrow(0, first, count), layout_}, rule_.clip_norm, columns_);
}

Tensor RowOptimizer::clipped(const Tensor& gradients, std::int64_t first,
                             std::int64_t count) const {
  if (rule_.clip_norm == 0) return gradients;
  const Tensor shortened = gradients.clone();
  clip_(shortened, first, count);
  return shortened;
}

}  // namespace fedhpc
