#pragma once

#include <cmath>
#include <numbers>

#include "codecs/compressor.hpp"

namespace fedhpc {

/// DRIVE (Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, "DRIVE: One-bit
/// Distributed Mean Estimation", NeurIPS 2021, Algorithm 1 with the unbiased scale). The columns of
/// all tensors, one behind the other, are cut into blocks of a power of two d, the largest that fits
/// first. A block x is turned, y = H D x / sqrt(d): D has random signs, H is Hadamard's matrix. With
/// S = ||x||^2 / ||y||_1 the receiver reads D H sign(y) S / sqrt(d), whose inner product with x is
/// ||x||^2:
///
///   the seed of the draws, 8 bytes, none without columns;
///   a field of 1 bit for every column, 1 where y's sign bit is set, filled up;
///   S of each block, then the values of all other columns, in order
///
/// D takes the bits of words, the lowest first, a new word for each block; 1 is -1. For turns drawn
/// of all there are it is unbiased and omega is pi/2 - 1 (Theorems 1 and 2). H D comes near to those
/// in long blocks without few large entries: of two entries it sends the larger one alone, for all
/// signs.
struct Drive : Compressor {
  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    const SplitRow inside = columns(row.size());
    const auto blocks = std::popcount(static_cast<std::uint64_t>(inside.count()));
    return (blocks > 0 ? 8 : 0) + bytes_for(inside.count()) +
           blocks * static_cast<std::int64_t>(sizeof(T)) + bytes_of_others(inside, row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    const SplitRow inside = columns(row.size());
    if (inside.count() > 0) writer.append(fit.seed);
    std::vector<double> values;
    inside.each_inside([&](std::size_t i) { values.push_back(static_cast<double>(row[i])); });
    std::vector<T> scales;
    Draws words = draws(fit.seed);
    each_block(values, [&](std::span<double> block) {
      double square = 0;
      for (const double x : block) square += x * x;
      flip_(block, words);
      turn_(block);
      double sum = 0;
      for (const double y : block) sum += std::abs(y);
      scales.push_back(std::abs(static_cast<T>(sum > 0 || std::isnan(sum) ? square / sum : 0)));
      for (const double y : block) writer.write(std::signbit(y) ? 1 : 0, 1);
    });
    writer.align();
    for (const T scale : scales) writer.append(bits_of(scale));
    append_others(inside, row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    const SplitRow inside = columns(row.size());
    const std::uint64_t seed = inside.count() > 0 ? reader.take<std::uint64_t>() : 0;
    std::vector<double> values(static_cast<std::size_t>(inside.count()));
    for (double& value : values) value = reader.read(1) == 0 ? 1 : -1;
    reader.align();
    Draws words = draws(seed);
    each_block(values, [&](std::span<double> block) {
      const T scale = std::bit_cast<T>(reader.take<BitsOf<T>>());
      if (std::signbit(scale)) reader.fail("a scale is negative");
      const double factor = shrinkage(std::numbers::pi / 2 - 1) * static_cast<double>(scale);
      turn_(block);
      flip_(block, words);
      for (double& value : block) value *= factor;
    });
    std::size_t next = 0;
    inside.each_inside([&](std::size_t i) { row[i] = static_cast<T>(values[next++]); });
    take_others(inside, reader, row);
  }

 private:
  template <typename Work>
  static void each_block(std::vector<double>& values, const Work& work) {
    for (std::size_t first = 0; first < values.size();) {
      const std::size_t size = std::bit_floor(values.size() - first);
      work(std::span<double>(values).subspan(first, size));
      first += size;
    }
  }

  static void flip_(std::span<double> block, Draws& words) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (i % 64 == 0) word = words.raw();
      if ((word >> (i % 64) & 1U) != 0) block[i] = -block[i];
    }
  }

  /// H / sqrt(d).
  static void turn_(std::span<double> block) {
    for (std::size_t half = 1; half < block.size(); half *= 2) {
      for (std::size_t first = 0; first < block.size(); first += 2 * half) {
        for (std::size_t i = first; i < first + half; ++i) {
          const double a = block[i];
          const double b = block[i + half];
          block[i] = a + b;
          block[i + half] = a - b;
        }
      }
    }
    const double factor = 1 / std::sqrt(static_cast<double>(block.size()));
    for (double& value : block) value *= factor;
  }
};

}  // namespace fedhpc
