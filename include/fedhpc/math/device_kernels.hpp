#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/math/p_norm.hpp"

// The kernels of this room on a device; fedhpc/core/device_kernels.hpp says what all keep.

namespace fedhpc {

/// Matrices one for each client, row-major.
struct DeviceMatrices {
  void* data = nullptr;
  std::int64_t stack_stride = 0;  ///< from one client's to the next; 0: the same for all
  std::int64_t row_stride = 0;
  bool transposed = false;  ///< op(X) = X^T; never of a result
};

/// result[c] = alpha op(a[c]) op(b[c]) + beta result[c], [rows, columns], over `inner`. With beta =
/// 0 the old result is not read.
struct DeviceProduct {
  /// A product in order adds so many terms of the inner index, then these sums.
  static constexpr std::int64_t kPart = 1024;
  static constexpr std::int64_t parts_of(std::int64_t inner) { return (inner + kPart - 1) / kPart; }
  /// It takes factors of shorter rows: places within a tile are counted in 32 bits.
  static constexpr std::int64_t kTooLong = std::int64_t{1} << 26;

  DType type;
  Precision precision = Precision::Fp32;
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  double alpha = 1;
  double beta = 0;
  DeviceMatrices a;
  DeviceMatrices b;
  DeviceMatrices result;
  void* parts = nullptr;  ///< room in order for [count, parts_of(inner), rows, columns] if several
};

/// <x_c, x_c> and, unless y.data is null, <x_c, y_c> of columns of rows, in float64, piece by piece
/// of kPiece columns: to sums[k, c, first_piece ..] of [1 or 2, rows, pieces].
struct DeviceRowProducts {
  static constexpr std::int64_t kPiece = 8192;
  static constexpr std::int64_t pieces_of(std::int64_t columns) {
    return (columns + kPiece - 1) / kPiece;
  }

  DType type;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DeviceColumns x;
  DeviceColumns y;
  std::int64_t first_piece = 0;
  std::int64_t pieces = 0;  ///< of a row in all
  double* sums = nullptr;
};

/// sums[r] = the sum of of_pieces[r], [rows, pieces].
struct DevicePieces {
  std::int64_t rows = 0;
  std::int64_t pieces = 0;
  const double* of_pieces = nullptr;
  double* sums = nullptr;
};

/// The network lasso's Z, V [N, columns] and A [E, columns] (math/network_lasso.hpp), all of so many
/// whole stripes of columns, row by row from an address that is a multiple of 16. W follows from A and
/// one number of each edge.
struct DeviceNetwork {
  static constexpr std::int64_t kStripe = 64;  ///< columns that are summed together

  DType type;
  VectorNorm norm = VectorNorm::Two;
  std::int64_t nodes = 0;
  std::int64_t edges = 0;
  std::int64_t stripes = 0;
  const std::int32_t* ends = nullptr;  ///< [E, 2]
  /// The edges of node i, [2 E, 2] from starts[i] on: the edge's number, or -1 - it where the node is
  /// its second end, and the node at the other end.
  const std::int32_t* joined = nullptr;
  const std::int32_t* starts = nullptr;  ///< [N + 1]
  const void* numbers = nullptr;         ///< [E]: thresholds, shares or levels
  void* z = nullptr;
  const void* v = nullptr;
  void* a = nullptr;
};

/// residuals [N, columns] = V + eta (Omega + rho W) Q^T - Z (I + eta rho Q Q^T).
struct DeviceNetworkResiduals {
  DeviceNetwork of;
  double eta_rho = 0;
  void* residuals = nullptr;
};

/// A <- Z Q - Omega / rho unless it stays; then each edge's numbers in each stripe: for p = 2 the
/// square [stripes, E], for p = infinity the sum of (|a| - level)_+ and the count of |a| above it
/// [stripes, E, 2].
struct DeviceNetworkDifferences {
  DeviceNetwork of;
  bool stays = false;
  const double* levels = nullptr;  ///< [E] of p = infinity
  double* sums = nullptr;          ///< null for p = 1
};

/// sums [stripes, 6]: squares of W - Z Q, W, Z Q, (Z - V) / eta - Omega Q^T, (Z - V) / eta and
/// Omega Q^T.
struct DeviceNetworkSquares {
  DeviceNetwork of;
  double eta = 0;
  double rho = 0;
  double* sums = nullptr;
};

/// Products, sums over columns of rows, and the steps of the network lasso.
class MathKernels {
 public:
  virtual ~MathKernels() = default;

  virtual void product(const DeviceProduct&) = 0;
  /// product() with every sum in the order of the inner index, part by part: an entry of the result
  /// depends, to the last bit, on its row and column of the factors and not on what is computed
  /// beside it.
  virtual void product_in_order(const DeviceProduct&) = 0;
  virtual void row_products(const DeviceRowProducts&) = 0;
  virtual void add_pieces(const DevicePieces&) = 0;
  /// How LibTorch's own products and convolutions on the device take float32 factors.
  virtual void use_precision(Precision precision) = 0;
  virtual void network_residuals(const DeviceNetworkResiduals&) = 0;
  virtual void network_differences(const DeviceNetworkDifferences&) = 0;
  virtual void network_squares(const DeviceNetworkSquares&) = 0;
};

}  // namespace fedhpc
