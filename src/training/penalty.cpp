#include "fedhpc/training/penalty.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/log1p.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/penalty_pass.hpp"
#include "fedhpc/training/device_kernels.hpp"

namespace fedhpc {

namespace {

/// The trainable columns that are not in `taken`, whose ranges are parts of them and disjoint.
ColumnRanges trainable(const Layout& layout, ColumnRanges taken) {
  std::sort(taken.begin(), taken.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  ColumnRanges left;
  auto next = taken.begin();
  for (auto [begin, end] : layout.ranges(Tag::Trainable)) {
    for (; next != taken.end() && next->first < end; ++next) {
      if (begin < next->first) left.push_back({begin, next->first});
      begin = next->last;
    }
    if (begin < end) left.push_back({begin, end});
  }
  return left;
}

/// Calls work(c, begin, count) for the trainable columns of some rows, those in `taken` left out.
template <typename Work>
void each_stretch(const Layout& layout, std::int64_t first, std::int64_t count, const Work& work,
                  const ColumnRanges& taken = {}) {
  const ColumnRanges ranges = trainable(layout, taken);
  for (std::int64_t c = first; c < first + count; ++c) {
    for (const auto& [begin, end] : ranges) work(c, begin, end - begin);
  }
}

template <typename T>
const T* place(const Tensor& rows, std::int64_t c, std::int64_t column) {
  return rows.const_data_ptr<T>() + c * rows.stride(0) + column;
}

template <typename T>
const T* centre_of(const Penalty& penalty, std::int64_t c, std::int64_t column) {
  return penalty.mu == 0 ? nullptr : place<T>(penalty.centre.values, c, column);
}

PenaltyNumbers numbers_of(const Rows& rows, const Penalty& penalty) {
  require(penalty.mu == 0 || penalty.centre.values.sizes() == rows.values.sizes(),
          "a penalty has one centre per row");
  return {.mu = penalty.mu, .gamma = penalty.gamma, .rho = penalty.rho};
}

DevicePenalty on_device(const PenaltyNumbers& numbers, const Penalty& penalty, std::int64_t first,
                        std::int64_t count) {
  DevicePenalty result{.mu = numbers.mu, .gamma = numbers.gamma, .rho = numbers.rho};
  if (numbers.mu != 0) {
    result.centre = device_columns(penalty.centre.values.narrow(0, first, count));
  }
  return result;
}

}  // namespace

void add_gradient_(const Tensor& gradients, const Rows& rows, const Penalty& penalty,
                   std::int64_t first, std::int64_t count, DeviceConstants& constants) {
  require(gradients.sizes() == rows.values.sizes(), "one gradient per row");
  const PenaltyNumbers numbers = numbers_of(rows, penalty);
  if (fedhpc::on_device(rows.values)) {
    const ColumnRanges ranges = rows.layout->ranges(Tag::Trainable);
    device_kernels<TrainingKernels>().add_penalty_gradient(
        {.type = real_of(rows.values),
         .rows = count,
         .ranges = constants.ranges(ranges, rows.values.device()),
         .range_count = std::ssize(ranges),
         .columns = rows.layout->size(),
         .g = device_columns(gradients.narrow(0, first, count)),
         .w = device_columns(rows.values.narrow(0, first, count)),
         .penalty = on_device(numbers, penalty, first, count)});
    return;
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    each_stretch(*rows.layout, first, count, [&](auto c, auto begin, auto length) {
      add_penalty_gradient_(gradients.data_ptr<T>() + c * gradients.stride(0) + begin,
                            place<T>(rows.values, c, begin), centre_of<T>(penalty, c, begin),
                            length, numbers);
    });
  });
}

void descend_(const Rows& rows, const Tensor& gradients, double lr, const Penalty& penalty,
              std::int64_t first, std::int64_t count, DeviceConstants& constants,
              const ColumnRanges& taken) {
  require(!gradients.defined() || gradients.sizes() == rows.values.sizes(), "one gradient per row");
  const PenaltyNumbers numbers = numbers_of(rows, penalty);
  if (fedhpc::on_device(rows.values)) {
    const ColumnRanges ranges = trainable(*rows.layout, taken);
    device_kernels<TrainingKernels>().step(
        {.type = real_of(rows.values),
         .rows = count,
         .ranges = constants.ranges(ranges, rows.values.device()),
         .range_count = std::ssize(ranges),
         .columns = rows.layout->size(),
         .w = device_columns(rows.values.narrow(0, first, count)),
         .g = gradients.defined() ? device_columns(gradients.narrow(0, first, count))
                                  : DeviceColumns{},
         .lr = constants.number(lr, rows.values.device()),
         .penalty = on_device(numbers, penalty, first, count)});
    return;
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    const auto step = [&](auto c, auto begin, auto length) {
      penalised_step_(rows.values.data_ptr<T>() + c * rows.values.stride(0) + begin,
                      gradients.defined() ? place<T>(gradients, c, begin) : nullptr,
                      centre_of<T>(penalty, c, begin), length, lr, numbers);
    };
    each_stretch(*rows.layout, first, count, step, taken);
  });
}

void descend_(const Rows& rows, double lr, const Penalty& penalty) {
  DeviceConstants constants;
  descend_(rows, {}, lr, penalty, 0, rows.count(), constants);
}

std::vector<double> smoothed_l1(const Rows& rows, double rho) {
  std::vector<double> sums(static_cast<std::size_t>(rows.count()), 0);
  if (fedhpc::on_device(rows.values)) {
    for (const auto& [begin, end] : rows.layout->ranges(Tag::Trainable)) {
      // rho log cosh(x) = rho (|x| + log(1 + exp(-2 |x|)) - log 2), x = w / rho
      const Tensor x = rows.values.narrow(1, begin, end - begin).to(at::kDouble).div(rho).abs();
      const Tensor parts = at::log1p(x.mul(-2).exp()).add(x).sub(std::log(2.0)).sum(1).mul(rho);
      const Tensor of_clients = on_host(parts);
      for (std::size_t c = 0; c < sums.size(); ++c) {
        sums[c] += of_clients.const_data_ptr<double>()[c];
      }
    }
    return sums;
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    each_stretch(*rows.layout, 0, rows.count(), [&](auto c, auto begin, auto length) {
      sums[static_cast<std::size_t>(c)] +=
          smoothed_l1(place<T>(rows.values, c, begin), length, rho);
    });
  });
  return sums;
}

}  // namespace fedhpc
