#pragma once

#include <cstdint>

namespace fedhpc {

/// The inner products of two vectors a and b, accumulated in float64.
struct InnerProducts {
  double aa = 0;  ///< <a, a>
  double ab = 0;  ///< <a, b>
};

/// Computes both in one pass over `count` numbers.
InnerProducts inner_products(const float* a, const float* b, std::int64_t count);
InnerProducts inner_products(const double* a, const double* b, std::int64_t count);

/// out = x + fa a + fb b for `count` numbers, in one pass; out may be x.
void add_two(float* out, const float* x, double fa, const float* a, double fb, const float* b,
             std::int64_t count);
void add_two(double* out, const double* x, double fa, const double* a, double fb, const double* b,
             std::int64_t count);

}  // namespace fedhpc
