#include "fedhpc/factorisations/hadamard.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/products.hpp"

#include "factorisations/least_squares.hpp"

namespace fedhpc {

Hadamard::Hadamard(const WeightShape& shape, std::int64_t rank, const FactorForm& form)
    : shape_(shape.in_two_dimensions()), rank_(rank), arithmetic_{.summation = form.summation} {
  require(rank_ >= 1, "a decomposition has a rank of 1 or more");
  const std::vector<std::int64_t>& sizes = shape_.sizes;
  window_ = of_kernels() ? sizes[2] * sizes[3] : 1;
  if (!of_kernels()) matrix_.emplace(MatrixView(shape_, ConvView::Raw), rank_, form.summation);
  for (const int j : {1, 2}) {
    if (of_kernels()) {
      factors_.push_back({.name = concat("T", j),
                          .sizes = {rank_, rank_, sizes[2], sizes[3]},
                          .fan_in = rank_ * window_});
    }
    // As the authors' program has them, which stores them transposed.
    factors_.push_back({.name = concat("X", j), .sizes = {sizes[0], rank_}, .fan_in = sizes[0]});
    factors_.push_back({.name = concat("Y", j), .sizes = {sizes[1], rank_}, .fan_in = sizes[1]});
  }
}

std::int64_t Hadamard::rank_of(const WeightShape& weights, CompressionRate rate,
                               const FactorForm& form) {
  const WeightShape shape = weights.in_two_dimensions();
  const auto ends = static_cast<double>(shape.sizes[0] + shape.sizes[1]);
  const double numbers = static_cast<double>(shape.count()) / rate.value;
  double rank = numbers / (2 * ends);
  if (shape.sizes.size() == 4) {  // 2 (r^2 window + r ends) = numbers
    const auto window = static_cast<double>(shape.sizes[2] * shape.sizes[3]);
    const double half = ends / (2 * window);
    rank = std::sqrt(half * half + numbers / (2 * window)) - half;
  }
  if (form.bound == RankBound::Full) {
    const auto longer = static_cast<double>(std::max(shape.sizes[0], shape.sizes[1]));
    return std::llround(std::max(std::ceil(std::sqrt(longer)), std::ceil(rank)));
  }
  // What is a whole number but for rounding is that number.
  return std::max<std::int64_t>(1, std::llround(std::floor(rank * (1 + 1e-12))));
}

double Hadamard::initial_deviation() const {
  // Wj has variance r sigma^4, kernels r^2 sigma^6; W the product of both.
  const double variance = 2.0 / static_cast<double>(shape_.fan_in);
  const auto rank = static_cast<double>(rank_);
  const double of_half = std::sqrt(variance);
  return of_kernels() ? std::pow(of_half / (rank * rank), 1.0 / 6)
                      : std::pow(of_half / rank, 1.0 / 4);
}

Hadamard::Half Hadamard::half(const Tensor& u, std::size_t j) const {
  const std::size_t each = factors_.size() / 2;
  std::int64_t column = j == 0 ? 0 : count() / 2;
  Half half;
  for (std::size_t f = 0; f < each; ++f) {
    const std::int64_t size = factors_[f].count();
    const Tensor part = u.narrow(1, column, size);
    column += size;
    (each == 3 && f == 0 ? half.core : f + 2 == each ? half.x : half.y) = part;
  }
  return half;
}

void Hadamard::reserve(const Tensor& u) {
  const bool fits = gradient_.defined() && gradient_.size(0) >= u.size(0) &&
                    gradient_.scalar_type() == u.scalar_type();
  if (fits) return;
  for (Tensor* rows : {composed_.data(), &composed_[1], &gradient_}) {
    *rows = at::empty({u.size(0), shape_.count()}, u.options());
  }
  for (Tensor* rows : {&between_, &between_gradient_}) {
    *rows = at::empty({shape_.sizes[0], rank_ * window_}, u.options());
  }
}

void Hadamard::multiply_core(const Half& half, std::int64_t c) {
  batched_product(between_.scalar_type(), 1, 1,
                  matrices_in(half.x.narrow(0, c, 1), 0, shape_.sizes[0], rank_), Transpose::No,
                  matrices_in(half.core.narrow(0, c, 1), 0, rank_, rank_ * window_), Transpose::No,
                  0, matrices_in(between_.view({1, -1}), 0, shape_.sizes[0], rank_ * window_));
}

void Hadamard::compose_(const Half& half, const Tensor& w) {
  if (!of_kernels()) {
    matrix_->multiply_(half.x, half.y, w, FactorProduct::Write::Replace);
    return;
  }
  const std::int64_t out = shape_.sizes[0];
  const std::int64_t in = shape_.sizes[1];
  for (std::int64_t c = 0; c < w.size(0); ++c) {
    // X T, then Y (X T)_o for every output o.
    multiply_core(half, c);
    batched_product(w.scalar_type(), out, 1,
                    matrices_in(half.y.narrow(0, c, 1).expand({out, in * rank_}), 0, in, rank_),
                    Transpose::No, matrices_in(between_, 0, rank_, window_), Transpose::No, 0,
                    matrices_in(w[c].view({out, in * window_}), 0, in, window_));
  }
}

void Hadamard::pull_(const Half& half, const Tensor& dw, const Half& gradient) {
  if (!of_kernels()) {
    matrix_->pull_left_(dw, half.y, gradient.x);
    matrix_->pull_right_(dw, half.x, gradient.y);
    return;
  }
  const at::ScalarType type = dw.scalar_type();
  const std::int64_t out = shape_.sizes[0];
  const std::int64_t in = shape_.sizes[1];
  for (std::int64_t c = 0; c < dw.size(0); ++c) {
    const auto of_client = [c](const Tensor& rows, std::int64_t height, std::int64_t width) {
      return matrices_in(rows.narrow(0, c, 1), 0, height, width);
    };
    const Tensor of_outputs = dw[c].view({out, in * window_});
    multiply_core(half, c);
    batched_product(type, out, 1,
                    matrices_in(half.y.narrow(0, c, 1).expand({out, in * rank_}), 0, in, rank_),
                    Transpose::Yes, matrices_in(of_outputs, 0, in, window_), Transpose::No, 0,
                    matrices_in(between_gradient_, 0, rank_, window_));
    for (std::int64_t o = 0; o < out; ++o) {
      batched_product(type, 1, 1, matrices_in(of_outputs.narrow(0, o, 1), 0, in, window_),
                      Transpose::No, matrices_in(between_.narrow(0, o, 1), 0, rank_, window_),
                      Transpose::Yes, o == 0 ? 0 : 1, of_client(gradient.y, in, rank_));
    }
    const MatrixStack pulled =
        matrices_in(between_gradient_.view({1, -1}), 0, out, rank_ * window_);
    batched_product(type, 1, 1, pulled, Transpose::No, of_client(half.core, rank_, rank_ * window_),
                    Transpose::Yes, 0, of_client(gradient.x, out, rank_));
    batched_product(type, 1, 1, of_client(half.x, out, rank_), Transpose::Yes, pulled,
                    Transpose::No, 0, of_client(gradient.core, rank_, rank_ * window_));
  }
}

void Hadamard::expand_(const Tensor& u, const Tensor& w) {
  if (on_device(u)) return expand_on_device_(u, w);
  reserve(u);
  const Tensor second = composed_[1].narrow(0, 0, u.size(0));
  compose_(half(u, 0), w);
  compose_(half(u, 1), second);
  w.mul_(second);
}

void Hadamard::pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) {
  if (on_device(u)) return pullback_on_device_(u, dw, du);
  reserve(u);
  const std::int64_t clients = u.size(0);
  const Tensor gradient = gradient_.narrow(0, 0, clients);
  for (const std::size_t j : {0, 1}) {
    const Tensor other = composed_[1 - j].narrow(0, 0, clients);
    compose_(half(u, 1 - j), other);
    Tensor of_half = gradient;
    at::mul_out(of_half, dw, other);
    pull_(half(u, j), of_half, half(du, j));
  }
}

void Hadamard::distance_gradient_(const Tensor& u, const Tensor& w, double scale,
                                  const Tensor& du) {
  residual_pullback_(*this, u, w, scale, du);
}

Tensor Hadamard::fit(const Tensor& w, const Tensor& start, std::int64_t sweeps) {
  ColumnRanges groups;
  std::int64_t column = 0;
  for (const FactorShape& factor : factors_) {
    groups.push_back({column, column + factor.count()});
    column += factor.count();
  }
  return least_squares(*this, groups, w, start, sweeps).to(w.device(), w.scalar_type());
}

}  // namespace fedhpc
