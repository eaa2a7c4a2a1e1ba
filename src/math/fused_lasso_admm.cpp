#include <algorithm>
#include <cmath>
#include <vector>

#include "fedhpc/math/fused_lasso.hpp"

namespace fedhpc {

namespace {

/// The alternating directions of one row after another.
class Admm {
 public:
  Admm(std::int64_t count, double gamma, const FusedLassoAdmmOptions& options)
      : count_(static_cast<std::size_t>(count)),
        options_(options),
        kappa_(options.rho * gamma),
        inverse_pivot_(count_),
        g_(count_),
        u_(count_),
        r_(count_),
        omega_(count_),
        z_(count_) {
    for (std::size_t i = 0; i < count_; ++i) {  // I + kappa Lambda^T Lambda = L D L^T
      const double before = i == 0 ? 0 : kappa_ * inverse_pivot_[i - 1];
      inverse_pivot_[i] = 1 / (1 + (i == 0 ? kappa_ : 2 * kappa_ - kappa_ * before));
    }
  }

  template <typename T>
  FusedLassoAdmmReport solve_(T* row) {
    double square = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      g_[i] = static_cast<double>(row[i]);
      square += g_[i] * g_[i];
    }
    if (square == 0) return {};  // u = g
    const double scale = 1 / std::sqrt(square);
    std::fill(u_.begin(), u_.end(), 0);
    std::fill(omega_.begin(), omega_.end(), 0);
    FusedLassoAdmmReport report;
    while (report.steps < options_.steps) {
      ++report.steps;
      shrink_and_eliminate();
      const auto [primal, dual] = substitute();
      report.primal = scale * std::sqrt(primal);
      report.dual = scale * kappa_ * std::sqrt(dual);
      if (std::max(report.primal, report.dual) <= options_.tolerance) break;
    }
    std::transform(u_.begin(), u_.end(), row, [](double u) { return static_cast<T>(u); });
    return report;
  }

 private:
  struct Squares {
    double primal = 0;
    double dual = 0;
  };

  /// r, and on the way the right hand side and its elimination from the first row to the last.
  void shrink_and_eliminate() {
    const double threshold = 1 / options_.rho;
    double b_before = 0;
    double carried = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const double difference = i + 1 < count_ ? u_[i] - u_[i + 1] : u_[i];
      const double scaled = omega_[i] * threshold;
      const double a = difference - scaled;
      r_[i] = a - std::clamp(a, -threshold, threshold);
      const double b = r_[i] + scaled;
      z_[i] = g_[i] + kappa_ * (b - b_before) + carried;
      b_before = b;
      carried = kappa_ * inverse_pivot_[i] * z_[i];
    }
  }

  /// u from the last row to the first, omega, and the squares of the residuals.
  Squares substitute() {
    Squares squares;
    double after = 0;
    double after_old = 0;
    for (std::size_t i = count_; i-- > 0;) {
      const double old = u_[i];
      u_[i] = (z_[i] + kappa_ * after) * inverse_pivot_[i];
      const double gap = r_[i] - (u_[i] - after);
      const double moved = (u_[i] - after) - (old - after_old);
      omega_[i] += options_.rho * gap;
      squares.primal += gap * gap;
      squares.dual += moved * moved;
      after = u_[i];
      after_old = old;
    }
    return squares;
  }

  std::size_t count_;
  FusedLassoAdmmOptions options_;
  double kappa_;  // rho gamma
  std::vector<double> inverse_pivot_;
  std::vector<double> g_;
  std::vector<double> u_;
  std::vector<double> r_;
  std::vector<double> omega_;
  std::vector<double> z_;
};

}  // namespace

Tensor first_differences(const Tensor& rows) {
  Tensor differences = rows.clone(at::MemoryFormat::Contiguous);
  const std::int64_t count = rows.size(1);
  if (count > 1) differences.narrow(1, 0, count - 1).sub_(rows.narrow(1, 1, count - 1));
  return differences;
}

FusedLassoAdmmReport fused_lasso_admm_(const Tensor& rows, double gamma,
                                       const FusedLassoAdmmOptions& options) {
  require(rows.dim() == 2 && rows.device().is_cpu(), "rows are [C, n] on the CPU");
  require(rows.size(1) <= 1 || rows.stride(1) == 1, "columns are contiguous");
  require(gamma >= 0 && std::isfinite(gamma), "gamma is finite and not negative");
  require(options.rho > 0, "rho is above 0");
  FusedLassoAdmmReport worst;
  if (gamma == 0 || rows.numel() == 0) return worst;
  Admm admm(rows.size(1), gamma, options);
  with_type(rows.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < rows.size(0); ++c) {
      const FusedLassoAdmmReport of_row = admm.solve_(rows.data_ptr<T>() + c * rows.stride(0));
      worst.steps = std::max(worst.steps, of_row.steps);
      worst.primal = std::max(worst.primal, of_row.primal);
      worst.dual = std::max(worst.dual, of_row.dual);
    }
  });
  return worst;
}

}  // namespace fedhpc
