#pragma once

#include <algorithm>
#include <cmath>

#include "codecs/compressor.hpp"

namespace fedhpc {

/// The length by which a tensor's values are measured.
enum class TensorNorm { Euclidean, Largest };

/// Values of a tensor become, with its norm M and s levels, sign(x) l M / s. With u = s |x| / M the
/// level l is floor(u), or one more with probability u - floor(u):
///
///   a field of ceil(log2(2 s + 1)) bits for every column of a tensor, s + l or s - l, filled up;
///   the norm of each tensor, then the values of all other columns, in order
///
/// One uniform is drawn for each column, in order. Unbiased. Of n columns omega is
///
///   Euclidean   min(n / s^2, sqrt(n) / s): Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD:
///               Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017,
///               Lemma 3.1
///   Largest     min(n / (4 s^2), (1 + sqrt(n)) / (2 s)), the second as the variance of a
///               value is at most |x| M / s and ||x||_1 M <= (1 + sqrt(n)) / 2 ||x||^2. With s = 1
///               Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed
///               Deep Learning", NeurIPS 2017.
///
/// A norm that is no finite number arrives, and its tensor as NaN.
template <TensorNorm norm>
struct Levels : Compressor {
  std::int64_t levels = 7;  ///< s

  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    const SplitRow tensors = columns(row.size());
    return bytes_for(tensors.count() * width()) +
           static_cast<std::int64_t>(tensors.ranges().size() * sizeof(T)) +
           bytes_of_others(tensors, row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    const SplitRow tensors = columns(row.size());
    Draws uniforms = draws(fit.seed);
    std::vector<T> norms;
    for (const Range& range : tensors.ranges()) {
      norms.push_back(length(of_range(row, range)));
      const auto m = static_cast<double>(norms.back());
      for (const T value : of_range(row, range)) {
        const std::int64_t l = level(static_cast<double>(value), m, uniforms.uniform());
        writer.write(static_cast<std::uint64_t>(levels + (std::signbit(value) ? -l : l)), width());
      }
    }
    writer.align();
    for (const T m : norms) writer.append(bits_of(m));
    append_others(tensors, row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    const SplitRow tensors = columns(row.size());
    tensors.each_inside([&](std::size_t i) {
      const auto field = static_cast<std::int64_t>(reader.read(width()));
      if (field > 2 * levels) reader.fail(concat("a field holds ", field));
      row[i] = static_cast<T>(field - levels);
    });
    reader.align();
    for (const Range& range : tensors.ranges()) {
      const T m = std::bit_cast<T>(reader.take<BitsOf<T>>());
      if (std::signbit(m)) reader.fail("a norm is negative");
      const double unit =
          shrinkage(omega(range.size())) * static_cast<double>(m) / static_cast<double>(levels);
      for (T& value : of_range(row, range)) {
        value = static_cast<T>(unit * static_cast<double>(value));
      }
    }
    take_others(tensors, reader, row);
  }

  /// Of a tensor of n columns.
  double omega(std::int64_t n) const {
    const auto s = static_cast<double>(levels);
    const auto columns = static_cast<double>(n);
    if constexpr (norm == TensorNorm::Euclidean) {
      return std::min(columns / (s * s), std::sqrt(columns) / s);
    } else {
      return std::min(columns / (4 * s * s), (1 + std::sqrt(columns)) / (2 * s));
    }
  }

 private:
  int width() const { return bits_for(2 * levels + 1); }

  template <typename T>
  static T length(std::span<const T> values) {
    double sum = 0;
    for (const T value : values) {
      const auto x = static_cast<double>(value);
      if (std::isnan(x)) return std::abs(value);
      sum = norm == TensorNorm::Euclidean ? sum + x * x : std::max(sum, std::abs(x));
    }
    return static_cast<T>(norm == TensorNorm::Euclidean ? std::sqrt(sum) : sum);
  }

  std::int64_t level(double value, double m, double uniform) const {
    const double u = static_cast<double>(levels) * (std::abs(value) / m);
    if (!(u > 0) || !std::isfinite(m)) return 0;
    const double below = std::floor(u);
    const std::int64_t l = static_cast<std::int64_t>(std::min(below, static_cast<double>(levels)));
    return std::min(l + (uniform < u - below ? 1 : 0), levels);
  }
};

using Qsgd = Levels<TensorNorm::Euclidean>;

/// Levels of the largest magnitude, of which no key says how many there are.
template <std::int64_t s>
struct OfLargest : Levels<TensorNorm::Largest> {
  OfLargest() { this->levels = s; }
};

using TernGrad = OfLargest<1>;
using Int4 = OfLargest<7>;
using Int8 = OfLargest<127>;

}  // namespace fedhpc
