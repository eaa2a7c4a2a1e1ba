#include "fedhpc/math/order_free_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

constexpr int kBits = 44;  // of each of the two integers a number becomes

/// The largest number, [1]; infinity where one is not finite, for maxima pass over what is undefined.
Tensor largest_of(const Tensor& parts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (on_device(parts)) {
    if (parts.numel() == 0) return at::zeros({1}, parts.options());
    return parts.nan_to_num(kInfinity, kInfinity).amax().clamp_min(0).reshape({1});
  }
  double largest = 0;
  bool finite = true;
  const auto* numbers = parts.const_data_ptr<double>();
  for (std::int64_t i = 0; i < parts.numel(); ++i) {
    finite = finite & (numbers[i] <= std::numeric_limits<double>::max());
    largest = std::max(largest, numbers[i]);
  }
  return at::full({1}, finite ? largest : kInfinity, at::kDouble);
}

/// A number below 2^51 as the nearest integer, and what the integer lacks of it. In float64
/// arithmetic, for there are no vector instructions that convert to 64 bits.
struct Rounded {
  std::int64_t whole;
  double rest;
};
Rounded rounded(double x) {
  constexpr double kShift = 0x1.8p52;  // so large that its last bit counts units
  const double shifted = x + kShift;
  return {std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kShift),
          x - (shifted - kShift)};
}

/// What makes a number one of kBits bits and back: a power of two in two halves, as that of the
/// smallest numbers is beyond float64's range.
struct Scale {
  explicit Scale(double largest) {
    const int shift = kBits - (std::ilogb(largest) + 1);
    half = std::ldexp(1.0, shift / 2);
    other_half = std::ldexp(1.0, shift - shift / 2);
  }
  double half;
  double other_half;
  double rest = std::ldexp(1.0, kBits);
};

/// The sums of each column's integers and of what these lack, [2, n].
Tensor integers_of(const Tensor& parts, const Scale& scale) {
  if (on_device(parts)) {
    const Tensor scaled = parts.mul(scale.half).mul(scale.other_half);
    const Tensor whole = scaled.round();
    const Tensor low = scaled.sub(whole).mul(scale.rest).round();
    return at::stack({whole.to(at::kLong).sum(0), low.to(at::kLong).sum(0)});
  }
  const std::int64_t n = parts.size(1);
  Tensor integers = at::zeros({2, n}, at::kLong);
  auto* high = integers.data_ptr<std::int64_t>();
  std::int64_t* low = high + n;
  for (std::int64_t m = 0; m < parts.size(0); ++m) {
    const double* row = parts.const_data_ptr<double>() + m * n;
    for (std::int64_t i = 0; i < n; ++i) {
      const Rounded scaled = rounded(row[i] * scale.half * scale.other_half);
      high[i] += scaled.whole;
      low[i] += rounded(scaled.rest * scale.rest).whole;
    }
  }
  return integers;
}

}  // namespace

Tensor order_free_sum(Communicator& comm, const Tensor& parts) {
  require(parts.dim() == 2 && parts.is_contiguous() && parts.scalar_type() == at::kDouble,
          "what is summed is [m, n] float64");
  const std::int64_t n = parts.size(1);
  Tensor most = largest_of(parts);
  comm.max_(most);
  const auto largest = most.item<double>();
  Tensor sums = at::zeros({n}, at::kDouble);
  auto* out = sums.data_ptr<double>();
  if (!std::isfinite(largest)) {
    std::fill_n(out, n, std::numeric_limits<double>::quiet_NaN());
    return sums;
  }
  if (largest == 0) return sums;
  const Scale scale(largest);
  Tensor integers = integers_of(parts, scale);
  comm.sum_(integers);
  integers = on_host(integers);
  const auto* high = integers.const_data_ptr<std::int64_t>();
  const std::int64_t* low = high + n;
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = (static_cast<double>(high[i]) + static_cast<double>(low[i]) / scale.rest) /
             scale.half / scale.other_half;
  }
  return sums;
}

}  // namespace fedhpc
