#include "fedhpc/factorisations/product_factorisation.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"

#include "factorisations/least_squares.hpp"

namespace fedhpc {

std::int64_t rank_within(const MatrixView& view, CompressionRate rate, std::int64_t of_rank) {
  const auto rows = static_cast<double>(view.rows());
  const auto columns = static_cast<double>(view.columns());
  constexpr double kBelow = 1 - 1e-12;  // what rounding adds to a whole number is no further rank
  const double rank =
      std::ceil(rows * columns / (rate.value * static_cast<double>(of_rank)) * kBelow);
  return std::max<std::int64_t>(1, std::llround(rank));
}

ProductFactorisation::ProductFactorisation(std::unique_ptr<FactorProduct> product, Trained trained,
                                           const WeightShape& shape, const MatrixView& view)
    : product_(std::move(product)), trained_(trained), shape_(shape), view_(view) {
  const std::vector<std::int64_t> left = product_->left_sizes();
  const std::vector<std::int64_t> right = product_->right_sizes();
  const std::string u = product_->left_name();
  const std::string v = product_->right_name();
  if (trained_ != Trained::Both) constants_.push_back({u + "_fixed", left, false, left.back()});
  if (trained_ == Trained::Decoupled) constants_.push_back({v + "_fixed", right});
  if (trained_ != Trained::Right) {
    factors_.push_back({u, left, /*zero_for_zero=*/trained_ == Trained::Decoupled, left.back()});
  }
  factors_.push_back({v, right, /*zero_for_zero=*/true});
}

void ProductFactorisation::set_constants(const Tensor& values) {
  values_ = values.reshape({1, -1});
}

Tensor ProductFactorisation::left(const Tensor& u) const {
  return u.narrow(1, 0, factors_.front().count());
}

Tensor ProductFactorisation::right(const Tensor& u) const {
  return u.narrow(1, factors_.size() == 1 ? 0 : factors_.front().count(), factors_.back().count());
}

Tensor ProductFactorisation::constant(std::size_t i, const Tensor& u) const {
  require(values_.defined() && values_.scalar_type() == u.scalar_type() &&
              values_.device() == u.device(),
          "constants are set, in the type and on the device of the factors");
  return values_.narrow(1, i == 0 ? 0 : constants_.front().count(), constants_[i].count())
      .expand({u.size(0), constants_[i].count()});
}

Tensor ProductFactorisation::room_for_matrices(const Tensor& u) {
  // On a device an allocation costs nothing, and layers one after the other get the same memory.
  if (on_device(u)) return at::empty({u.size(0), shape_.count()}, u.options());
  if (!scratch_.defined() || scratch_.size(0) < u.size(0) ||
      scratch_.scalar_type() != u.scalar_type()) {
    scratch_ = at::empty({u.size(0), shape_.count()}, u.options());
  }
  return scratch_.narrow(0, 0, u.size(0));
}

void ProductFactorisation::expand_(const Tensor& u, const Tensor& w) {
  using Write = FactorProduct::Write;
  const Tensor matrices = view_.is_weights() ? w : room_for_matrices(u);
  switch (trained_) {
    case Trained::Both:
      product_->multiply_(left(u), right(u), matrices, Write::Replace);
      break;
    case Trained::Right:
      product_->multiply_(constant(0, u), right(u), matrices, Write::Replace);
      break;
    case Trained::Decoupled:
      product_->multiply_(left(u), constant(1, u), matrices, Write::Replace);
      product_->multiply_(constant(0, u), right(u), matrices, Write::Add);
      break;
  }
  if (!view_.is_weights()) view_.to_weights_(matrices, w);
}

void ProductFactorisation::pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) {
  const Tensor matrices = product_->arranged(view_.matrices_of(dw));
  const bool both = trained_ == Trained::Both;
  if (trained_ != Trained::Right) {
    product_->pull_left_(matrices, both ? right(u) : constant(1, u), left(du));
  }
  product_->pull_right_(matrices, both ? left(u) : constant(0, u), right(du));
}

void ProductFactorisation::distance_gradient_(const Tensor& u, const Tensor& w, double scale,
                                              const Tensor& du) {
  residual_pullback_(*this, u, w, scale, du);
}

Tensor ProductFactorisation::fit(const Tensor& w, const Tensor& start, std::int64_t) {
  if (trained_ == Trained::Both) {
    const Tensor matrix = view_.matrices_of(on_host(w).to(at::kDouble).reshape({1, -1}))[0];
    return product_->fit(matrix).to(w.device(), w.scalar_type());
  }
  const Tensor values = values_;
  values_ = on_host(values).to(at::kDouble);
  const Tensor u = least_squares(*this, {{0, count()}}, w, start, 1);
  values_ = values;
  return u.to(w.device(), w.scalar_type());
}

double ProductFactorisation::initial_deviation() const {
  if (trained_ != Trained::Both) return 0;
  const double variance = 2.0 / static_cast<double>(shape_.fan_in);
  return std::pow(variance / product_->variance(), 0.25);
}

Tensor ProductFactorisation::matrix_of(const Tensor& w, const WeightShape&) const {
  return view_.matrices_of(w.reshape({1, -1})).reshape({view_.rows(), view_.columns()});
}

}  // namespace fedhpc
