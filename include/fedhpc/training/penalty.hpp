#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/models/layout.hpp"
#include "fedhpc/training/device_constants.hpp"

namespace fedhpc {

/// Adds terms to the loss of the data, over the trainable columns:
///
///   mu/2 ||w - centre||^2 + gamma phi_rho(w),   phi_rho(w) = rho sum_n log cosh(w_n / rho)
///
/// phi_rho stands in for ||w||_1 (sFedHP, (4)): 0 <= ||w||_1 - phi_rho(w) <= P rho log 2, and its
/// gradient is tanh(w / rho).
struct Penalty {
  double mu = 0;     ///< 0: nothing pulls
  Rows centre{};     ///< [C, P]; read only where mu is above 0
  double gamma = 0;  ///< 0: nothing shrinks
  double rho = 1;    ///< above 0

  bool any() const { return mu != 0 || gamma != 0; }
};

/// gradients += those of the penalty at `rows`, of rows [first, first + count). Constants are read
/// on a device alone.
void add_gradient_(const Tensor& gradients,  // [C, P]
                   const Rows& rows,         // [C, P]
                   const Penalty& penalty, std::int64_t first, std::int64_t count,
                   DeviceConstants& constants);

/// Moves rows [first, first + count) one step on data and penalty together, in one pass:
/// w <- w - lr (g + mu (w - centre) + gamma tanh(w / rho)). Without `gradients` g is 0. Columns in
/// `taken` stay as they are.
void descend_(const Rows& rows,         // [C, P]
              const Tensor& gradients,  // [C, P] or undefined
              double lr, const Penalty& penalty, std::int64_t first, std::int64_t count,
              DeviceConstants& constants, const ColumnRanges& taken = {});

/// One gradient step of all rows on the penalty alone. A device gets its constants anew.
void descend_(const Rows& rows, double lr, const Penalty& penalty);

/// phi_rho of each row, [C].
std::vector<double> smoothed_l1(const Rows& rows, double rho);

}  // namespace fedhpc
