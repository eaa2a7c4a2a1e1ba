#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"

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

/// Products and sums over columns of rows.
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
};

}  // namespace fedhpc
