#include "fedhpc/math/truncated_svd.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

/// The sign of the largest entry of each column: singular vectors have two, and libraries differ.
Tensor signs(const Tensor& columns) {
  const Tensor largest = columns.abs().argmax(0, /*keepdim=*/true);
  return columns.gather(0, largest)[0].sign();
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Of a model that has diverged there is no decomposition.
bool is_finite(const Tensor& matrix) { return matrix.isfinite().all().item<bool>(); }

}  // namespace

BalancedProduct truncated_svd(const Tensor& matrix, std::int64_t rank) {
  if (!is_finite(matrix)) {
    return {at::full({matrix.size(0), rank}, kNan, at::kDouble),
            at::full({matrix.size(1), rank}, kNan, at::kDouble)};
  }
  const auto [left, values, right] =
      at::linalg_svd(on_host(matrix).to(at::kDouble), /*full_matrices=*/false);
  const std::int64_t kept = std::min(rank, values.size(0));
  const Tensor roots = values.narrow(0, 0, kept).sqrt().mul(signs(left.narrow(1, 0, kept)));
  BalancedProduct product{at::zeros({matrix.size(0), rank}, at::kDouble),
                          at::zeros({matrix.size(1), rank}, at::kDouble)};
  product.left.narrow(1, 0, kept).copy_(left.narrow(1, 0, kept).mul(roots));
  product.right.narrow(1, 0, kept).copy_(right.narrow(0, 0, kept).t().mul(roots));
  return product;
}

double effective_rank(const Tensor& matrix) {
  if (!is_finite(matrix)) return kNan;
  const Tensor values = at::linalg_svdvals(on_host(matrix).to(at::kDouble)).contiguous();
  const double* s = values.const_data_ptr<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < values.size(0); ++i) sum += s[i];
  if (sum == 0) return 0;
  double entropy = 0;
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const double share = s[i] / sum;
    if (share > 0) entropy -= share * std::log(share);
  }
  return std::exp(entropy);
}

}  // namespace fedhpc
