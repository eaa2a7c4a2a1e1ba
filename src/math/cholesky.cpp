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

/// A triangular factor and right sides.
struct System {
  System(const Tensor& factor, const Tensor& right)
      : n(right.size(0)),
        m(right.size(1)),
        l(factor.data_ptr<double>()),
        b(right.data_ptr<double>()) {
    check(factor);
    check(right);
    require(factor.size(0) == n && factor.size(1) == n, "a factor as large as its right sides");
  }

  MatrixStack of_factor(std::int64_t first, std::int64_t last, std::int64_t first_column,
                        std::int64_t last_column) const {
    return {.data = l + first * n + first_column,
            .rows = last - first,
            .columns = last_column - first_column,
            .row_stride = n};
  }
  MatrixStack of_right(std::int64_t first, std::int64_t last) const {
    return {.data = b + first * m, .rows = last - first, .columns = m, .row_stride = m};
  }
  /// row i of the right sides -= times row k
  void subtract_(std::int64_t i, double times, std::int64_t k) const {
    double* row = b + i * m;
    const double* other = b + k * m;
    for (std::int64_t j = 0; j < m; ++j) row[j] -= times * other[j];
  }
  void divide_(std::int64_t i) const {
    const double pivot = l[i * n + i];
    for (std::int64_t j = 0; j < m; ++j) b[i * m + j] /= pivot;
  }

  std::int64_t n;
  std::int64_t m;
  double* l;
  double* b;
};

}  // namespace

void cholesky_(const Tensor& matrix) {
  check(matrix);
  const std::int64_t n = matrix.size(0);
  require(matrix.size(1) == n, "the matrix is square");
  auto* a = matrix.data_ptr<double>();
  for (std::int64_t first = 0; first < n; first += kPanel) {
    const std::int64_t last = std::min(first + kPanel, n);
    factor_panel(a, n, first, last);
    for (std::int64_t column = last; column < n;
         column += kPanel) {  // what lies below the diagonal
      const std::int64_t width = std::min(kPanel, n - column);
      const auto part = [&](std::int64_t rows, std::int64_t at, std::int64_t columns) {
        return MatrixStack{
            .data = a + column * n + at, .rows = rows, .columns = columns, .row_stride = n};
      };
      batched_product(at::kDouble, 1, -1, part(n - column, first, last - first), Transpose::No,
                      part(width, first, last - first), Transpose::Yes, 1,
                      part(n - column, column, width));
    }
  }
}

void solve_lower_(const Tensor& factor, const Tensor& right) {
  const System system(factor, right);
  for (std::int64_t first = 0; first < system.n; first += kPanel) {
    const std::int64_t last = std::min(first + kPanel, system.n);
    if (first > 0) {
      batched_product(at::kDouble, 1, -1, system.of_factor(first, last, 0, first), Transpose::No,
                      system.of_right(0, first), Transpose::No, 1, system.of_right(first, last));
    }
    for (std::int64_t i = first; i < last; ++i) {
      for (std::int64_t k = first; k < i; ++k) system.subtract_(i, system.l[i * system.n + k], k);
      system.divide_(i);
    }
  }
}

void solve_lower_transposed_(const Tensor& factor, const Tensor& right) {
  const System system(factor, right);
  for (std::int64_t last = system.n; last > 0;) {
    const std::int64_t first = (last - 1) / kPanel * kPanel;
    if (last < system.n) {
      batched_product(at::kDouble, 1, -1, system.of_factor(last, system.n, first, last),
                      Transpose::Yes, system.of_right(last, system.n), Transpose::No, 1,
                      system.of_right(first, last));
    }
    for (std::int64_t i = last; i-- > first;) {
      system.divide_(i);
      for (std::int64_t k = first; k < i; ++k) system.subtract_(k, system.l[i * system.n + k], i);
    }
    last = first;
  }
}

}  // namespace fedhpc
