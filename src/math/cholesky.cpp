#include "fedhpc/math/cholesky.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kPanel = 48;  // columns

void check(const Tensor& matrix) {
  require(matrix.dim() == 2 && matrix.is_cpu() && matrix.is_contiguous() &&
              matrix.scalar_type() == at::kDouble,
          "a matrix of float64, row by row in host memory");
}

/// Columns [first, last) of the rows from `first` on, whose earlier columns are accounted for.
void factor_panel(double* a, std::int64_t n, std::int64_t first, std::int64_t last) {
  std::array<double, kPanel> column{};  // of the panel's own rows, side by side
  for (std::int64_t k = first; k < last; ++k) {
    const double pivot = std::sqrt(a[k * n + k]);
    a[k * n + k] = pivot;
    for (std::int64_t i = k + 1; i < n; ++i) {
      double* row = a + i * n;
      row[k] /= pivot;
      const std::int64_t end = std::min(i + 1, last);
      if (i < last) column[static_cast<std::size_t>(i - first)] = row[k];
      for (std::int64_t j = k + 1; j < end; ++j) {
        row[j] -= row[k] * column[static_cast<std::size_t>(j - first)];
      }
    }
  }
}

}  // namespace

void cholesky_(const Tensor& matrix) {
  check(matrix);
  const std::int64_t n = matrix.size(0);
  require(matrix.size(1) == n, "the matrix is square");
  auto* a = matrix.data_ptr<double>();
  for (std::int64_t first = 0; first < n; first += kPanel) {
    const std::int64_t last = std::min(first + kPanel, n);
    factor_panel(a, n, first, last);
    const std::int64_t rest = n - last;
    if (rest == 0) break;
    const MatrixStack panel{
        .data = a + last * n + first, .rows = rest, .columns = last - first, .row_stride = n};
    batched_product(at::kDouble, 1, -1, panel, Transpose::No, panel, Transpose::Yes, 1,
                    {.data = a + last * n + last, .rows = rest, .columns = rest, .row_stride = n});
  }
}

void solve_lower_(const Tensor& factor, const Tensor& right) {
  check(factor);
  check(right);
  const std::int64_t n = right.size(0);
  const std::int64_t m = right.size(1);
  const auto* l = factor.const_data_ptr<double>();
  auto* b = right.data_ptr<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = b + i * m;
    for (std::int64_t k = 0; k < i; ++k) {
      const double times = l[i * n + k];
      const double* other = b + k * m;
      for (std::int64_t j = 0; j < m; ++j) row[j] -= times * other[j];
    }
    const double pivot = l[i * n + i];
    for (std::int64_t j = 0; j < m; ++j) row[j] /= pivot;
  }
}

void solve_lower_transposed_(const Tensor& factor, const Tensor& right) {
  check(factor);
  check(right);
  const std::int64_t n = right.size(0);
  const std::int64_t m = right.size(1);
  const auto* l = factor.const_data_ptr<double>();
  auto* b = right.data_ptr<double>();
  for (std::int64_t i = n; i-- > 0;) {
    double* row = b + i * m;
    const double pivot = l[i * n + i];
    for (std::int64_t j = 0; j < m; ++j) row[j] /= pivot;
    for (std::int64_t k = 0; k < i; ++k) {
      const double times = l[i * n + k];
      double* other = b + k * m;
      for (std::int64_t j = 0; j < m; ++j) other[j] -= times * row[j];
    }
  }
}

}  // namespace fedhpc
