#pragma once

#include <cmath>
#include <limits>

#include "codecs/compressor.hpp"
#include "codecs/signs.hpp"

namespace fedhpc {

/// sign(x) ||x||_1 / n of every tensor of n columns, as Signs: Karimireddy, Rebjock, Stich, Jaggi,
/// "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019.
/// ||C(x) - x||^2 = ||x||^2 - ||x||_1^2 / n.
struct ScaledSign : Compressor {
  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    return signs(row.size()).encoded_bytes(row);
  }
  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    std::vector<T> scaled(row.begin(), row.end());
    scale_(std::span<T>(scaled));
    signs(row.size()).encode(std::span<const T>(scaled), writer);
  }
  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    signs(row.size()).decode(reader, row);
  }
  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    scale_(row);
    return encoded_bytes(std::span<const T>(row));
  }

 private:
  Signs signs(std::size_t size) const { return {.columns = columns(size)}; }

  template <typename T>
  void scale_(std::span<T> row) const {
    const SplitRow tensors = columns(row.size());
    for (const Range& range : tensors.ranges()) {
      double sum = 0;
      for (const T value : of_range(row, range)) sum += std::abs(static_cast<double>(value));
      // One NaN without a sign: decoders want that, and sums keep any of several.
      const double exact = sum / static_cast<double>(range.size());
      const T mean =
          std::isnan(exact) ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(exact);
      for (T& value : of_range(row, range)) value = std::copysign(mean, value);
    }
  }
};

}  // namespace fedhpc
