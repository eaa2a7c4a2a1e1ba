#include "fedhpc/math/distribution_distance.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/pdist.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/percentile.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kTileRows = 64;  // what the own kernels of batched_product take
constexpr std::int64_t kTileColumns = 512;

/// A copy [n, F] in float64 that starts where any new tensor does: vector code may round by place.
Tensor wide_copy(const Tensor& x) {
  require(x.dim() == 2 && x.size(1) > 0, "a data set is a matrix with a row for each sample");
  return at::empty(x.sizes(), at::kDouble).copy_(x);
}

MatrixStack whole(const Tensor& matrix) {
  return {.data = matrix.data_ptr(),
          .rows = matrix.size(0),
          .columns = matrix.size(1),
          .row_stride = matrix.stride(0)};
}

/// a b^T of contiguous a [n, F] and b [m, F]: [n, m].
Tensor product(const Tensor& a, const Tensor& b) {
  Tensor result = at::empty({a.size(0), b.size(0)}, at::kDouble);
  for (std::int64_t first = 0; first < a.size(0); first += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, a.size(0) - first);
    batched_product(at::kDouble, 1, 1, whole(a.narrow(0, first, rows)), Transpose::No, whole(b),
                    Transpose::Yes, 0, whole(result.narrow(0, first, rows)));
  }
  return result;
}

/// Calls `visit(part, first)` with kTileRows rows of a matrix at a time.
template <typename Visit>
void each_tile(const Tensor& matrix, std::int64_t size, Visit&& visit) {
  for (std::int64_t first = 0; first < matrix.size(0); first += size) {
    visit(matrix.narrow(0, first, std::min(size, matrix.size(0) - first)), first);
  }
}

std::vector<double> column_means(const Tensor& x) {
  const auto columns = static_cast<std::size_t>(x.size(1));
  std::vector<double> means(columns, 0);
  const double* value = x.const_data_ptr<double>();
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (double& mean : means) mean += *value++;
  }
  for (double& mean : means) mean /= static_cast<double>(x.size(0));
  return means;
}

void subtract_(const Tensor& x, const std::vector<double>& row) {
  auto* value = x.data_ptr<double>();
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (const double number : row) *value++ -= number;
  }
}

std::vector<double> squared_norms(const Tensor& x) {
  std::vector<double> norms;
  const double* row = x.const_data_ptr<double>();
  for (std::int64_t i = 0; i < x.size(0); ++i, row += x.size(1)) {
    norms.push_back(std::inner_product(row, row + x.size(1), row, 0.0));
  }
  return norms;
}

/// Whether a [n, F] comes before b [m, F] in an order of matrices that only their values fix.
bool comes_before(const Tensor& a, const Tensor& b) {
  if (a.size(0) != b.size(0)) return a.size(0) < b.size(0);
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) < 0;
}

/// Sum of exp(-d^2 / (2 h^2)) over the pairs of a tile, d^2 = ||x||^2 + ||y||^2 - 2 <x, y>. What
/// the sums of so many features may round d^2 by counts as 0: a sample is at no distance to itself.
double kernel_sum(const Tensor& products, const double* x_norms, const double* y_norms,
                  std::int64_t features, double h) {
  const double rounding =
      static_cast<double>(features + 2) * std::numeric_limits<double>::epsilon();
  auto* entry = products.data_ptr<double>();
  const double scale = -1 / (2 * h * h);
  for (std::int64_t i = 0; i < products.size(0); ++i) {
    for (std::int64_t j = 0; j < products.size(1); ++j, ++entry) {
      const double norms = x_norms[i] + y_norms[j];
      const double squared = norms - 2 * *entry;
      *entry = squared <= rounding * norms ? 0 : scale * squared;  // a NaN is handed on
    }
  }
  products.exp_();
  const double* kernel = products.const_data_ptr<double>();
  return std::accumulate(kernel, kernel + products.numel(), 0.0);
}

/// A [rows, columns] of normals times `scale`, row i with client = i.
Tensor normal_rows(std::int64_t rows, std::int64_t columns, double scale, std::uint64_t seed,
                   std::uint64_t pass) {
  Tensor matrix = at::empty({rows, columns}, at::kDouble);
  auto* value = matrix.data_ptr<double>();
  for (std::int64_t i = 0; i < rows; ++i) {
    Draws draws({.seed = seed,
                 .purpose = Purpose::Features,
                 .pass = pass,
                 .client = static_cast<std::uint64_t>(i)});
    for (std::int64_t j = 0; j < columns; ++j) *value++ = scale * draws.normal();
  }
  return matrix;
}

void add_rows(const Tensor& rows, double* sums) {
  const double* value = rows.const_data_ptr<double>();
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    for (std::int64_t j = 0; j < rows.size(1); ++j) sums[j] += *value++;
  }
}

}  // namespace

double median_bandwidth(const Tensor& samples) {
  const Tensor copy = wide_copy(samples);
  if (copy.size(0) < 2) return 1;
  const Tensor distances = at::pdist(copy);  // [m (m - 1) / 2]
  std::vector<double> finite;
  finite.reserve(static_cast<std::size_t>(distances.numel()));
  const double* first = distances.const_data_ptr<double>();
  std::copy_if(first, first + distances.numel(), std::back_inserter(finite),
               [](double distance) { return std::isfinite(distance); });
  const double median = percentile(std::move(finite), 0.5);
  return median > 0 ? median : 1;
}

double kernel_mean(const Tensor& x, const Tensor& y, double h) {
  require(h > 0, "a kernel has a positive bandwidth");
  Tensor a = wide_copy(x);
  Tensor b = wide_copy(y);
  require(a.size(1) == b.size(1), "data sets have the same features");
  if (a.size(0) == 0 || b.size(0) == 0) return kNaN;
  // A product may round otherwise than its transpose: both orders of the arguments take one way.
  if (comes_before(b, a)) std::swap(a, b);
  // Near the origin less is lost when norms and products cancel.
  const std::vector<double> centre = column_means(a);
  subtract_(a, centre);
  subtract_(b, centre);
  const std::vector<double> a_norms = squared_norms(a);
  const std::vector<double> b_norms = squared_norms(b);
  double sum = 0;
  each_tile(a, kTileRows, [&](const Tensor& a_rows, std::int64_t i) {
    each_tile(b, kTileColumns, [&](const Tensor& b_rows, std::int64_t j) {
      sum +=
          kernel_sum(product(a_rows, b_rows), a_norms.data() + i, b_norms.data() + j, a.size(1), h);
    });
  });
  return sum / static_cast<double>(a.size(0)) / static_cast<double>(b.size(0));
}

FourierFeatures::FourierFeatures(std::int64_t features, std::int64_t count, double h,
                                 std::uint64_t seed) {
  require(features > 0 && count > 0 && count % 2 == 0, "Fourier features come in pairs");
  require(h > 0, "a kernel has a positive bandwidth");
  frequencies_ = normal_rows(count / 2, features, 1 / h, seed, 0);
}

Tensor FourierFeatures::mean_of(const Tensor& x) const {
  const Tensor copy = wide_copy(x);
  require(copy.size(1) == frequencies_.size(1), "samples have as many features as frequencies");
  Tensor mean = at::zeros({count()}, at::kDouble);
  auto* cosines = mean.data_ptr<double>();
  double* sines = cosines + count() / 2;
  each_tile(copy, kTileRows, [&](const Tensor& rows, std::int64_t) {
    const Tensor angles = product(rows, frequencies_);
    add_rows(angles.cos(), cosines);
    add_rows(angles.sin(), sines);
  });
  return mean.mul_(std::sqrt(2 / static_cast<double>(count())) / static_cast<double>(copy.size(0)));
}

Tensor covariance(const Tensor& x) {
  const Tensor copy = wide_copy(x);
  if (copy.size(0) == 0) return at::full({copy.size(1), copy.size(1)}, kNaN, at::kDouble);
  subtract_(copy, column_means(copy));
  Tensor result = at::empty({copy.size(1), copy.size(1)}, at::kDouble);
  batched_product(at::kDouble, 1, 1 / static_cast<double>(copy.size(0)), whole(copy),
                  Transpose::Yes, whole(copy), Transpose::No, 0, whole(result));
  return result.add(result.t()).mul_(0.5);
}

Tensor log_spd(const Tensor& c, double ridge) {
  require(c.dim() == 2 && c.size(0) == c.size(1) && c.size(0) > 0, "a covariance is square");
  require(ridge >= 0, "a ridge is not negative");
  Tensor matrix = wide_copy(c);
  const std::int64_t features = c.size(0);
  if (!matrix.isfinite().all().item<bool>()) return matrix.fill_(kNaN);
  const double trace = matrix.diagonal().sum().item<double>();
  matrix.diagonal().add_(ridge * trace / static_cast<double>(features));
  const auto [values, vectors] = at::linalg_eigh(matrix);
  const double largest = values[features - 1].item<double>();  // they ascend
  const double least =
      std::max(std::numeric_limits<double>::epsilon() * static_cast<double>(features) * largest,
               std::numeric_limits<double>::min());
  return vectors.mul(values.clamp_min(least).log_()).matmul(vectors.t());
}

GaussianProjection::GaussianProjection(std::int64_t features, std::uint64_t seed,
                                       std::int64_t dimensions) {
  require(features > 0 && dimensions > 0, "a projection has dimensions on both sides");
  if (features <= dimensions) return;
  const double scale = 1 / std::sqrt(static_cast<double>(dimensions));
  rows_ = normal_rows(dimensions, features, scale, seed, 1);
}

Tensor GaussianProjection::of(const Tensor& x) const {
  const Tensor copy = wide_copy(x);
  if (!rows_.defined()) return copy;
  require(copy.size(1) == rows_.size(1), "samples have as many features as the projection");
  return product(copy, rows_);
}

}  // namespace fedhpc
