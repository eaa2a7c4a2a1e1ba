#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codecs/bits.hpp"

namespace fedhpc {

/// Codes n symbols arithmetically; both ends know the count of each. It is an asymmetric numeral
/// system (Duda, "Asymmetric numeral systems: entropy coding combining speed of Huffman coding with
/// compression rate of arithmetic coding", arXiv:1311.2540, 2013). For symbol s with count f_s and
/// b_s symbols below it, it takes a state x to
///
///   x <- floor(x / f_s) n + b_s + x mod f_s
///
/// having moved the lowest bytes of x out until x < 2^32 f_s. The last symbol is coded first, from
/// x = 0, so that decoding, the inverse, gives the first one first. A payload holds the bytes in
/// reverse, those of the last state in front. n symbols of entropy H take at most n H + log2 n + 8
/// bits and a fraction of a bit, one kind of symbol none. As every step has an inverse, bytes that
/// decode to x = 0 and the right counts are what their symbols are encoded to.
class SymbolCoder {
 public:
  /// Takes the counts [m] of symbols 0 to m - 1, each at least 1, fewer than 2^31 together.
  explicit SymbolCoder(std::span<const std::int64_t> counts);

  /// Returns the bytes of the symbols. Runs through the states and keeps nothing.
  std::int64_t encoded_bytes(std::span<const std::int32_t> symbols) const;
  void encode(std::span<const std::int32_t> symbols, BitWriter& writer) const;

  /// Reads n symbols, n the sum of the counts, up to the payload's end. Throws Error for bytes that
  /// no such symbols are encoded to.
  std::vector<std::int32_t> decode(BitReader& reader) const;

 private:
  struct Symbol {
    std::uint64_t count;
    std::uint64_t below;
    double reciprocal;  ///< of the count
  };

  /// Calls emit with each byte, the payload's last one first.
  template <typename Emit>
  void each_byte(std::span<const std::int32_t> symbols, const Emit& emit) const;
  std::size_t symbol_at(std::uint64_t place) const;

  std::vector<Symbol> symbols_;
  std::uint64_t total_ = 0;
};

}  // namespace fedhpc
