#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "math/wide.hpp"

namespace fedhpc {

/// Columns solved together, side by side in memory.
constexpr std::int64_t kTileColumns = 16;

/// Allocates at the start of a cache line, so that a row of float32 is one of them.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename Other>
  explicit LineAllocator(const LineAllocator<Other>& /*other*/) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* numbers, std::size_t /*count*/) { ::operator delete(numbers, kLine); }
  bool operator==(const LineAllocator& /*other*/) const { return true; }
};

/// Rows of tiles, one after the other.
template <typename T>
using TileRows = std::vector<T, LineAllocator<T>>;

/// A row of a tile, in registers: compilers do not keep arrays of numbers there.
template <typename T>
class TileRow {
 public:
  TileRow() = default;
  /// Puts the same number into every column.
  explicit TileRow(T number) {
    for (Vector& x : of_) x = Vector{} + number;
  }

  static TileRow load(const T* from) {
    return each([&](int v) { return vector_at<Vector>(from + v * kEach).value; });
  }
  void store(T* to) const {
    for (int v = 0; v < kVectors; ++v) vector_at<Vector>(to + v * kEach).value = of_[v];
  }

  T operator[](std::int64_t column) const { return of_[column / kEach][column % kEach]; }

  TileRow& operator+=(const TileRow& b) { return *this = *this + b; }
  TileRow& operator-=(const TileRow& b) { return *this = *this - b; }
  friend TileRow operator+(const TileRow& a, const TileRow& b) {
    return each([&](int v) { return a.of_[v] + b.of_[v]; });
  }
  friend TileRow operator-(const TileRow& a, const TileRow& b) {
    return each([&](int v) { return a.of_[v] - b.of_[v]; });
  }
  friend TileRow operator*(const TileRow& a, const TileRow& b) {
    return each([&](int v) { return a.of_[v] * b.of_[v]; });
  }
  friend TileRow operator*(T a, const TileRow& b) {
    return each([&](int v) { return a * b.of_[v]; });
  }

  /// Clips each number to [-bound, bound]; what is not a number stays.
  friend TileRow clipped(const TileRow& a, T bound) {
    const Vector most = Vector{} + bound;
    return each([&](int v) {
      const Vector below = a.of_[v] > most ? most : a.of_[v];
      return below < -most ? -most : below;
    });
  }
  friend TileRow magnitude(const TileRow& a) {
    return each([&](int v) { return a.of_[v] < 0 ? -a.of_[v] : a.of_[v]; });
  }
  /// Returns 1 where a number is above 0, else 0.
  friend TileRow above_zero(const TileRow& a) {
    return each([&](int v) { return a.of_[v] > 0 ? Vector{} + 1 : Vector{}; });
  }
  /// Returns the sum over all columns.
  friend T sum(const TileRow& a) {
    Vector both = a.of_[0];
    for (int v = 1; v < kVectors; ++v) both += a.of_[v];
    T total = 0;
    for (int k = 0; k < kEach; ++k) total += both[k];
    return total;
  }

 private:
  static constexpr std::size_t kBytes = 32;  // of a vector, as x86-64-v3 has them
  static constexpr int kEach = kBytes / sizeof(T);
  static constexpr int kVectors = kTileColumns / kEach;
  using Vector = typename Lanes<T, kEach>::Type;

  template <typename Of>
  static TileRow each(const Of& of) {
    TileRow row;
    for (int v = 0; v < kVectors; ++v) row.of_[v] = of(v);
    return row;
  }

  Vector of_[kVectors];
};

}  // namespace fedhpc
