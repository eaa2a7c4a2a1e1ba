#include "factorisations/least_squares.hpp"

#include <algorithm>

#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

/// Of the squared length of the first gradient: below it a system counts as solved.
constexpr double kSolved = 1e-26;

double squared_length(const Tensor& vector) { return vector.dot(vector).item<double>(); }

/// min over x of ||w - expand(u with x in columns of `group`)||^2, from what stands there.
void solve_group_(Factorisation& factorisation, const Tensor& u, const Tensor& w, Range group) {
  const auto part = [group](const Tensor& row) {
    return row[0].narrow(0, group.first, group.size());
  };
  Tensor at = u.clone();  // the direction in the group's place
  Tensor image = at::empty_like(w);
  Tensor gradient = at::empty_like(u);
  const Tensor x = part(u);
  residual_pullback_(factorisation, u, w, -1, gradient);  // A^T (w - A x)
  Tensor r = part(gradient).clone();
  Tensor p = r.clone();
  double length = squared_length(r);
  const double enough = kSolved * length;
  for (std::int64_t i = 0; i < 2 * group.size() && length > enough; ++i) {
    part(at).copy_(p);
    factorisation.expand_(at, image);  // A p
    const double curvature = squared_length(image[0]);
    if (curvature == 0) return;
    const double step = length / curvature;
    x.add_(p, step);
    factorisation.pullback_(u, image, gradient);  // A^T A p
    r.sub_(part(gradient), step);
    const double next = squared_length(r);
    p.mul_(next / length).add_(r);
    length = next;
  }
}

}  // namespace

Tensor room_for_residuals(const Tensor& w) {
  const std::int64_t stride = w.stride(0);
  const std::int64_t column = stride > 0 ? w.storage_offset() % stride : 0;
  if (!on_device(w) || column + w.size(1) > stride) return at::empty(w.sizes(), w.options());
  return at::empty({w.size(0), stride}, w.options()).narrow(1, column, w.size(1));
}

void residual_pullback_(Factorisation& factorisation, const Tensor& u, const Tensor& w,
                        double scale, const Tensor& du) {
  const Tensor residual = room_for_residuals(w);
  factorisation.expand_(u, residual);
  residual.sub_(w).mul_(scale);
  factorisation.pullback_(u, residual, du);
}

Tensor least_squares(Factorisation& factorisation, const ColumnRanges& groups, const Tensor& w,
                     const Tensor& start, std::int64_t sweeps) {
  const Tensor weights = on_host(w).to(at::kDouble).reshape({1, -1}).contiguous();
  const Tensor u =
      on_host(start).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).reshape({1, -1});
  for (std::int64_t sweep = 0; sweep < sweeps; ++sweep) {
    for (const Range& group : groups) solve_group_(factorisation, u, weights, group);
  }
  return u[0];
}

}  // namespace fedhpc
