#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// A stretch of a string: `length` coordinates of sum `sum`, so that its slope is sum / length.
struct StringEdge {
  double sum = 0;
  double length = 0;
};

/// The exact proximal operator of gamma |Lambda u|_1 in linear time. With the similarity-network
/// method's equation (7) and u = (x_t - y) / eta_t,
///
///   argmin_y <g, y> + gamma |Lambda (y - x_t)|_1 + |y - x_t|^2 / (2 eta_t)
///
/// is argmin_u |u - g|^2 / 2 + gamma (sum_{i<n} |u_i - u_{i+1}| + |u_n|), whatever x_t and eta_t
/// are. Its solution holds the slopes of the shortest string through a tube of half width gamma
/// about the sums G_k = g_1 + ... + g_k that begins at 0 and ends free (Davies and Kovac, "Local
/// extremes, runs, strings and multiresolution", Annals of Statistics 29, 2001). Free, because v_n
/// in u = g - Lambda^T v is bounded like the others: that is the term |u_n|.
///
/// Holds the memory the operator works in, from one call to the next: one object per thread. A
/// few kB for noise; 16 bytes a coordinate and hull (at worst 4 times that) where a row bends one
/// way throughout and gamma is large.
class FusedLasso {
 public:
  /// Each row g of `rows` [C, n] becomes u. float32 or float64, computed in float64 on the host,
  /// wherever rows lie; the columns contiguous, the rows as far apart as one likes. gamma >= 0; gamma = 0 leaves every bit
  /// alone, an infinite one gives 0. Coordinates of one plateau are equal bit for bit, and no 0 is
  /// negative. A row that holds a NaN or an infinity becomes NaN throughout. In the other rows
  /// |g_i| n^2 must stay within float64's range. Sums are taken one coordinate after the other, so
  /// that a plateau of m coordinates may carry m float64 roundings of its sum. Work: at most 4 n +
  /// 2 visits of a string's edge a row.
  void prox_(const Tensor& rows, double gamma);

  /// Edges put on a hull, merged or passed on to the solution by the last call: its work.
  std::int64_t visits() const { return visits_; }

 private:
  template <typename T>
  void row_(T* row, std::int64_t count, double gamma);

  std::array<std::vector<StringEdge>, 2> hulls_;
  std::int64_t visits_ = 0;
};

}  // namespace fedhpc
