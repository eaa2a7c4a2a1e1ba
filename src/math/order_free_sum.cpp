#include "fedhpc/math/order_free_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace fedhpc {

namespace {

constexpr int kBits = 44;  // of each of the two integers a number becomes

/// The largest number; infinity where one is not finite, for maxima pass over what is undefined.
double largest_of(const Tensor& parts) {
  double largest = 0;
  bool finite = true;
  const auto* numbers = parts.const_data_ptr<double>();
  for (std::int64_t i = 0; i < parts.numel(); ++i) {
    finite = finite & (numbers[i] <= std::numeric_limits<double>::max());
    largest = std::max(largest, numbers[i]);
  }
  return finite ? largest : std::numeric_limits<double>::infinity();
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

}  // namespace

Tensor order_free_sum(Communicator& comm, const Tensor& parts) {
  require(parts.dim() == 2 && parts.is_contiguous() && parts.scalar_type() == at::kDouble,
          "what is summed is [m, n] float64");
  const std::int64_t n = parts.size(1);
  Tensor most = at::full({1}, largest_of(parts), at::kDouble);
  comm.max_(most);
  const auto largest = most.item<double>();
  Tensor sums = at::zeros({n}, at::kDouble);
  auto* out = sums.data_ptr<double>();
  if (!std::isfinite(largest)) {
    std::fill_n(out, n, std::numeric_limits<double>::quiet_NaN());
    return sums;
  }
  if (largest == 0) return sums;
  // A power of two in two halves: of the smallest numbers it is beyond float64's range.
  const int shift = kBits - (std::ilogb(largest) + 1);
  const double half = std::ldexp(1.0, shift / 2);
  const double other_half = std::ldexp(1.0, shift - shift / 2);
  const double rest = std::ldexp(1.0, kBits);
  Tensor integers = at::zeros({2, n}, at::kLong);
  auto* high = integers.data_ptr<std::int64_t>();
  std::int64_t* low = high + n;
  for (std::int64_t m = 0; m < parts.size(0); ++m) {
    const double* row = parts.const_data_ptr<double>() + m * n;
    for (std::int64_t i = 0; i < n; ++i) {
      const Rounded scaled = rounded(row[i] * half * other_half);
      high[i] += scaled.whole;
      low[i] += rounded(scaled.rest * rest).whole;
    }
  }
  comm.sum_(integers);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] =
        (static_cast<double>(high[i]) + static_cast<double>(low[i]) / rest) / half / other_half;
  }
  return sums;
}

}  // namespace fedhpc
