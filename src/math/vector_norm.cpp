#include "fedhpc/math/vector_norm.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace fedhpc {

namespace {

std::span<const double> numbers_of(const Tensor& a) {
  require(a.dim() == 1 && a.is_contiguous() && a.scalar_type() == at::kDouble,
          "a vector of float64");
  return {a.const_data_ptr<double>(), static_cast<std::size_t>(a.numel())};
}

}  // namespace

double norm_of(const Tensor& a, VectorNorm norm) {
  double sum = 0;
  double largest = 0;
  for (const double x : numbers_of(a)) {
    sum += norm == VectorNorm::Two ? x * x : std::abs(x);
    largest = std::max(largest, std::abs(x));
  }
  if (norm == VectorNorm::Infinity) return largest;
  return norm == VectorNorm::Two ? std::sqrt(sum) : sum;
}

double clip_level(const Tensor& a, double tau) {
  const std::span<const double> numbers = numbers_of(a);
  double theta = 0;
  std::int64_t last_above = -1;
  while (true) {
    double excess = 0;
    std::int64_t above = 0;
    for (const double x : numbers) {
      if (std::abs(x) > theta) {
        excess += std::abs(x) - theta;
        ++above;
      }
    }
    // From the left the entries above theta only become fewer; once they stay, so does theta.
    if (above == last_above || above == 0) return theta;
    last_above = above;
    if (excess <= tau) return theta;
    theta = next_clip_level(theta, excess, above, tau);
  }
}

Tensor prox(const Tensor& a, VectorNorm norm, double tau) {
  require(tau >= 0, "a norm's weight is not negative");
  Tensor w = a.clone();
  auto* out = w.data_ptr<double>();
  const double level = norm == VectorNorm::Infinity ? clip_level(a, tau) : 0;
  const double length = norm == VectorNorm::Two ? norm_of(a, norm) : 0;
  const double share = length > tau ? 1 - tau / length : 0;
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    switch (norm) {
      case VectorNorm::One:
        out[i] -= std::clamp(out[i], -tau, tau);
        break;
      case VectorNorm::Two:
        out[i] *= share;
        break;
      case VectorNorm::Infinity:
        out[i] = std::clamp(out[i], -level, level);
        break;
    }
  }
  return w;
}

}  // namespace fedhpc
