#pragma once

#include <limits>

#include "codecs/compressor.hpp"

namespace fedhpc {

/// Values become powers of two, one of the two neighbours so that they are right in expectation:
///
///   a field for every column of a tensor, its exponent of 8 bits (float64: 11) below its sign;
///   filled up; then the values of all other columns, in order
///
/// The exponent is one more where a uniform, drawn for each column in order, is below the fraction
/// (Horvath, Ho, Horvath, Sahu, Canini, Richtarik, "Natural Compression for Distributed Deep
/// Learning", 2019). omega = 1/8. Numbers below the least normal one become 0 or that; from the
/// largest power of two on they may arrive infinite, as a NaN does.
struct Natural : Compressor {
  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    const SplitRow tensors = columns(row.size());
    return bytes_for(tensors.count() * (1 + kExponent<T>)) + bytes_of_others(tensors, row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    const SplitRow tensors = columns(row.size());
    Draws uniforms = draws(fit.seed);
    tensors.each_inside([&](std::size_t i) {
      const BitsOf<T> bits = bits_of(row[i]);
      const std::uint64_t fraction = bits & ((BitsOf<T>{1} << kFraction<T>)-1);
      std::uint64_t top = bits >> kFraction<T>;
      const bool finite = (top & kInfinite<T>) != kInfinite<T>;
      const double share =
          static_cast<double>(fraction) / static_cast<double>(std::uint64_t{1} << kFraction<T>);
      if (uniforms.uniform() < share && finite) ++top;
      writer.write(top, 1 + kExponent<T>);
    });
    writer.align();
    append_others(tensors, row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    const SplitRow tensors = columns(row.size());
    const double factor = shrinkage(0.125);
    tensors.each_inside([&](std::size_t i) {
      const auto bits = static_cast<BitsOf<T>>(reader.read(1 + kExponent<T>));
      const T value = std::bit_cast<T>(static_cast<BitsOf<T>>(bits << kFraction<T>));
      row[i] = static_cast<T>(factor * static_cast<double>(value));
    });
    reader.align();
    take_others(tensors, reader, row);
  }

 private:
  template <typename T>
  static constexpr int kFraction = std::numeric_limits<T>::digits - 1;
  template <typename T>
  static constexpr int kExponent = 8 * static_cast<int>(sizeof(T)) - 1 - kFraction<T>;
  template <typename T>
  static constexpr std::uint64_t kInfinite = (std::uint64_t{1} << kExponent<T>)-1;
};

}  // namespace fedhpc
