#pragma once

#include <cmath>
#include <vector>

#include "codecs/compressor.hpp"

namespace fedhpc {

/// PowerSGD (Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
/// Distributed Optimization", NeurIPS 2019, Algorithm 1), started anew for every payload. A tensor is
/// a matrix M [h, w] of its outputs. One step of the power method with normal Q_0 [w, r] gives the
/// receiver P Q^T:
///
///   P = columns of M Q_0 made orthonormal,  Q = M^T P
///
/// In order of the tensors, where r (h + w) < h w:
///
///   P [h, r] and Q [w, r]
///
/// and the values of other tensors; then the values of all other columns. As a projection it only
/// shortens: ||C(M) - M||^2 = ||M||^2 - ||C(M)||^2, (1 - r / w) ||M||^2 in expectation at most.
struct LowRank : Compressor {
  std::int64_t rank = 2;

  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    std::int64_t numbers = 0;
    each_tensor(row.size(), [&](const Range& range, const Shape& shape) {
      numbers += is_matrix(shape) ? rank * (shape.height + shape.width) : range.size();
    });
    return numbers * static_cast<std::int64_t>(sizeof(T)) +
           bytes_of_others(columns(row.size()), row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    Draws normals = draws(fit.seed);
    const auto put = [&](double value) { writer.append(bits_of(static_cast<T>(value))); };
    each_tensor(row.size(), [&](const Range& range, const Shape& shape) {
      const std::span<const T> values = of_range(row, range);
      if (!is_matrix(shape)) {
        for (const T value : values) writer.append(bits_of(value));
        return;
      }
      Factor start(static_cast<std::size_t>(shape.width * rank));
      for (double& value : start) value = normals.normal();
      Factor p = product(Of::Matrix, values, shape, start);
      make_orthonormal_(p);
      // The receiver's P is rounded, and Q is right for that one.
      for (double& value : p) value = static_cast<double>(static_cast<T>(value));
      for (const double value : p) put(value);
      for (const double value : product(Of::Transpose, values, shape, p)) put(value);
    });
    append_others(columns(row.size()), row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    const auto take = [&] { return std::bit_cast<T>(reader.take<BitsOf<T>>()); };
    each_tensor(row.size(), [&](const Range& range, const Shape& shape) {
      const std::span<T> values = of_range(row, range);
      if (!is_matrix(shape)) {
        for (T& value : values) value = take();
        return;
      }
      Factor p(static_cast<std::size_t>(shape.height * rank));
      Factor q(static_cast<std::size_t>(shape.width * rank));
      for (double& value : p) value = static_cast<double>(take());
      for (double& value : q) value = static_cast<double>(take());
      for (std::int64_t i = 0; i < shape.height; ++i) {
        for (std::int64_t j = 0; j < shape.width; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < rank; ++k) sum += at(p, i, k) * at(q, j, k);
          values[static_cast<std::size_t>(i * shape.width + j)] = static_cast<T>(sum);
        }
      }
    });
    take_others(columns(row.size()), reader, row);
  }

 private:
  struct Shape {
    std::int64_t height;
    std::int64_t width;
  };
  using Factor = std::vector<double>;  // [n, rank]

  bool is_matrix(const Shape& of) const {
    return rank * (of.height + of.width) < of.height * of.width;
  }

  const double& at(const Factor& factor, std::int64_t i, std::int64_t k) const {
    return factor[static_cast<std::size_t>(i * rank + k)];
  }
  double& at(Factor& factor, std::int64_t i, std::int64_t k) const {
    return factor[static_cast<std::size_t>(i * rank + k)];
  }

  /// Calls visit(range, shape) for every tensor; where no heights are known, it is one row.
  template <typename Visit>
  void each_tensor(std::size_t size, const Visit& visit) const {
    const ColumnRanges ranges = columns(size).ranges();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::int64_t height = fit.heights.empty() ? 1 : fit.heights[i];
      visit(ranges[i], Shape{height, ranges[i].size() / height});
    }
  }

  enum class Of { Matrix, Transpose };

  /// M X [h, r], or M^T X [w, r].
  template <typename T>
  Factor product(Of of, std::span<const T> matrix, const Shape& shape, const Factor& x) const {
    const bool turned = of == Of::Transpose;
    Factor result(static_cast<std::size_t>((turned ? shape.width : shape.height) * rank));
    const T* value = matrix.data();
    for (std::int64_t i = 0; i < shape.height; ++i) {
      for (std::int64_t j = 0; j < shape.width; ++j, ++value) {
        for (std::int64_t k = 0; k < rank; ++k) {
          at(result, turned ? j : i, k) += static_cast<double>(*value) * at(x, turned ? i : j, k);
        }
      }
    }
    return result;
  }

  /// Gram and Schmidt, twice for each column. One that those before it explain becomes 0.
  void make_orthonormal_(Factor& x) const {
    constexpr double kExplained = 1e-10;
    const auto rows = static_cast<std::int64_t>(x.size()) / rank;
    const auto inner = [&](std::int64_t k, std::int64_t l) {
      double sum = 0;
      for (std::int64_t i = 0; i < rows; ++i) sum += at(x, i, k) * at(x, i, l);
      return sum;
    };
    for (std::int64_t k = 0; k < rank; ++k) {
      const double before = std::sqrt(inner(k, k));
      for (int turn = 0; turn < 2; ++turn) {
        for (std::int64_t l = 0; l < k; ++l) {
          const double share = inner(k, l);
          for (std::int64_t i = 0; i < rows; ++i) at(x, i, k) -= share * at(x, i, l);
        }
      }
      const double length = std::sqrt(inner(k, k));
      const bool explained = length <= kExplained * before;
      for (std::int64_t i = 0; i < rows; ++i) {
        at(x, i, k) = explained ? 0 : at(x, i, k) / length;
      }
    }
  }
};

}  // namespace fedhpc
