#pragma once

#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/rounds/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

/// A pack of columns of one row.
template <typename T, int N>
struct Accumulate {
  Divisor columns;  // in packs
  Columns<const T> values;
  Sink<T> sink;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split at = columns(i);
    const Pack<T, N> x = load<T, N>(values(at.quotient) + at.rest * N);
    T* out = sink.out(at.quotient) + at.rest * N;
    Pack<T, N> result{};
    if (sink.keep != T{0}) result = load<T, N>(out);
    for (int k = 0; k < N; ++k) sink.write(x.value[k], result.value[k]);
    store(out, result);
  }
};

/// One column of one segment, or its sum of weights: rows are added in their order.
template <typename T>
struct AddWeighted {
  std::int64_t rows;
  std::int64_t columns;
  Columns<const T> values;
  const std::int64_t* segments;
  const double* weights;
  double* sums;
  Divisor per_segment;  // columns + 1

  explicit AddWeighted(const DeviceWeightedSum& of)
      : rows(of.rows),
        columns(of.columns),
        values(of.values),
        segments(of.segments),
        weights(of.weights),
        sums(of.sums),
        per_segment(of.columns + 1) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    constexpr int kAtOnce = 8;  // rows whose values are on their way at the same time
    const Split at = per_segment(i);
    double sum = sums[i];
    for (std::int64_t c = 0; c < rows; c += kAtOnce) {
      double weight[kAtOnce];
      double value[kAtOnce];
      for (int k = 0; k < kAtOnce; ++k) {
        const bool counts = c + k < rows && segments[c + k] == at.quotient;
        weight[k] = counts ? weights[c + k] : 0;
        value[k] = 1;
        if (weight[k] != 0 && at.rest < columns) {
          value[k] = static_cast<double>(values(c + k)[at.rest]);
        }
      }
      for (int k = 0; k < kAtOnce; ++k) {
        if (weight[k] != 0) sum += weight[k] * value[k];
      }
    }
    sums[i] = sum;
  }
};

/// One piece of one row, by groups of one size.
template <typename T>
struct RowProducts {
  static constexpr int kThreads = 256;
  std::int64_t rows;
  std::int64_t columns;
  Columns<const T> x;
  Columns<const T> y;
  std::int64_t first_piece;
  std::int64_t pieces;
  double* sums;
  Divisor pieces_here;

  explicit RowProducts(const DeviceRowProducts& of)
      : rows(of.rows),
        columns(of.columns),
        x(of.x),
        y(of.y),
        first_piece(of.first_piece),
        pieces(of.pieces),
        sums(of.sums),
        pieces_here(DeviceRowProducts::pieces_of(of.columns)) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const Split at = pieces_here(g);
    const std::int64_t begin = at.rest * DeviceRowProducts::kPiece;
    const std::int64_t end = smaller(begin + DeviceRowProducts::kPiece, columns);
    const T* row = x(at.quotient);
    const T* other = y.data != nullptr ? y(at.quotient) : row;
    TwoSums own;
    FEDHPC_UNROLL
    for (std::int64_t i = begin + group.rank(); i < end; i += group.size()) {
      const auto value = static_cast<double>(row[i]);
      own.first += value * value;
      own.second += value * static_cast<double>(other[i]);
    }
    const TwoSums all = group.sum(own);
    if (group.rank() > 0) return;
    double* out = sums + at.quotient * pieces + first_piece + at.rest;
    out[0] = all.first;
    if (y.data != nullptr) out[rows * pieces] = all.second;
  }
};

/// One row's pieces, by groups of one size.
struct AddPieces {
  static constexpr int kThreads = 128;
  std::int64_t pieces;
  const double* of_pieces;
  double* sums;

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t r) const {
    double own = 0;
    for (std::int64_t i = group.rank(); i < pieces; i += group.size()) {
      own += of_pieces[r * pieces + i];
    }
    const double all = group.sum(own);
    if (group.rank() == 0) sums[r] = all;
  }
};

/// counters[i] += 1
struct Advance {
  std::int64_t* counters;

  FEDHPC_KERNEL void operator()(std::int64_t i) const { ++counters[i]; }
};

}  // namespace fedhpc::kernels
