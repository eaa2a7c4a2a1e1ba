#include "fedhpc/math/vector_passes.hpp"

#include <array>
#include <numeric>

#include "math/wide.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kLanes = 16;  // sums that do not wait for each other

template <typename T>
FEDHPC_INLINE InnerProducts products(const T* __restrict a, const T* __restrict b,
                                     std::int64_t count) {
  std::array<double, kLanes> aa{};
  std::array<double, kLanes> ab{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto x = static_cast<double>(a[i + static_cast<std::int64_t>(lane)]);
      const auto y = static_cast<double>(b[i + static_cast<std::int64_t>(lane)]);
      aa[lane] += x * x;
      ab[lane] += x * y;
    }
  }
  for (; i < count; ++i) {
    aa[0] += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    ab[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return {std::accumulate(aa.begin(), aa.end(), 0.0), std::accumulate(ab.begin(), ab.end(), 0.0)};
}

template <typename T>
FEDHPC_INLINE void add(T* out, const T* x, T fa, const T* __restrict a, T fb, const T* __restrict b,
                       std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] + (fa * a[i] + fb * b[i]);
}

template <typename T>
FEDHPC_WIDE InnerProducts wide_products(const T* a, const T* b, std::int64_t count) {
  return products(a, b, count);
}

template <typename T>
FEDHPC_WIDE void wide_add(T* out, const T* x, T fa, const T* a, T fb, const T* b,
                          std::int64_t count) {
  add(out, x, fa, a, fb, b, count);
}

template <typename T>
InnerProducts products_anywhere(const T* a, const T* b, std::int64_t count) {
  return has_wide_vectors() ? wide_products(a, b, count) : products(a, b, count);
}

template <typename T>
void add_anywhere(T* out, const T* x, double fa, const T* a, double fb, const T* b,
                  std::int64_t count) {
  const auto run = has_wide_vectors() ? wide_add<T> : add<T>;
  run(out, x, static_cast<T>(fa), a, static_cast<T>(fb), b, count);
}

}  // namespace

InnerProducts inner_products(const float* a, const float* b, std::int64_t count) {
  return products_anywhere(a, b, count);
}
InnerProducts inner_products(const double* a, const double* b, std::int64_t count) {
  return products_anywhere(a, b, count);
}

void add_two(float* out, const float* x, double fa, const float* a, double fb, const float* b,
             std::int64_t count) {
  add_anywhere(out, x, fa, a, fb, b, count);
}
void add_two(double* out, const double* x, double fa, const double* a, double fb, const double* b,
             std::int64_t count) {
  add_anywhere(out, x, fa, a, fb, b, count);
}

}  // namespace fedhpc
