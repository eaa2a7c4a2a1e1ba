#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fedhpc {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

/// The bits of a number of type T, as an unsigned integer.
template <std::floating_point T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <std::floating_point T>
constexpr BitsOf<T> bits_of(T value) {
  return std::bit_cast<BitsOf<T>>(value);
}

/// The bits that tell n things apart: ceil(log2 n), 0 for n <= 1. n >= 0.
constexpr int bits_for(std::int64_t n) {
  return n <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// The bytes that hold so many bits.
constexpr std::int64_t bytes_for(std::int64_t bits) { return (bits + 7) / 8; }

/// Writes fields of any width one after the other, the lowest bit first, and whole numbers,
/// little-endian.
class BitWriter {
 public:
  /// Writes the lowest `width` bits of `field`, whose other bits are 0. 0 <= width <= 64.
  void write(std::uint64_t field, int width);

  /// Fills the current byte up with zeros.
  void align();

  /// Appends a number as it lies in memory; the writer must be at the start of a byte.
  template <typename T>
  void append(T value) {
    append_bytes(&value, sizeof value);
  }

  /// Returns everything written so far, aligned; leaves the writer empty.
  std::vector<std::byte> take();

 private:
  void append_bytes(const void* data, std::size_t size);

  std::vector<std::byte> bytes_;
  std::uint64_t pending_ = 0;  // bits not yet in bytes_, fewer than 8 between two calls
  int num_pending_ = 0;
};

/// Reads what a BitWriter wrote. All errors are thrown as Error and name the codec, the size of the
/// payload and the number of values it should hold.
class BitReader {
 public:
  BitReader(std::span<const std::byte> bytes, std::string_view codec, std::size_t num_values)
      : bytes_(bytes), codec_(codec), num_values_(num_values) {}

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }  ///< in bytes

  /// The whole bytes not yet read from.
  std::int64_t left() const { return static_cast<std::int64_t>(bytes_.size() - next_); }

  /// Reads the next `width` bits. 0 <= width <= 64.
  std::uint64_t read(int width);

  /// Goes on to the next whole byte; the bits in between must be 0.
  void align();

  /// Reads the next number; the reader must be at the start of a byte.
  template <typename T>
  T take() {
    T value;
    take_bytes(&value, sizeof value);
    return value;
  }

  /// Throws unless all bytes were read.
  void finish() const;

  /// Throws Error: the payload cannot be decoded, because `why`.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  void take_bytes(void* data, std::size_t size);

  std::span<const std::byte> bytes_;
  std::size_t next_ = 0;       // byte
  std::uint64_t pending_ = 0;  // bits read from bytes_ but not yet given out, fewer than 8
  int num_pending_ = 0;
  std::string_view codec_;
  std::size_t num_values_;
};

}  // namespace fedhpc
