#include "fedhpc/math/order_free_sum.hpp"

#include <algorithm>
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
  const auto* numbers = parts.const_data_ptr<double>();
  for (std::int64_t i = 0; i < parts.numel(); ++i) {
    if (!std::isfinite(numbers[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, numbers[i]);
  }
  return largest;
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
      const double scaled = row[i] * half * other_half;
      const auto whole = static_cast<std::int64_t>(scaled);
      high[i] += whole;
      low[i] += static_cast<std::int64_t>((scaled - static_cast<double>(whole)) * rest);
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
