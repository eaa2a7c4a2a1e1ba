#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/core/error.hpp"

#include "codecs/bits.hpp"
#include "codecs/split_row.hpp"

namespace fedhpc {

/// The k largest magnitudes among m columns of a row:
///
///   k fields of b = ceil(log2 m) bits, their places among the m in rising order, filled up; none
///     where k = m
///   those values, then the values of all other columns, in order
///
/// Magnitudes are compared by their bits: a NaN is larger than any number.
struct Largest {
  SplitRow columns;
  std::int64_t k = 0;

  template <typename T>
  static constexpr bool kLossless = false;
  template <typename T>
  static constexpr bool kLinear = false;

  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    return bytes_for(k * place_bits()) + k * static_cast<std::int64_t>(sizeof(T)) +
           bytes_of_others(columns, row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    const std::vector<Entry<T>> sent = chosen(row);
    const int bits = place_bits();
    for (const Entry<T>& entry : sent) {
      if (bits > 0) writer.write(entry.place, bits);
    }
    writer.align();
    for (const Entry<T>& entry : sent) writer.append(bits_of(row[entry.column]));
    append_others(columns, row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    std::vector<std::size_t> places;
    for (std::int64_t i = 0; i < k; ++i) {
      places.push_back(k == columns.count() ? static_cast<std::size_t>(i)
                                            : reader.read(place_bits()));
      const bool rises = i == 0 || places[places.size() - 2] < places.back();
      if (!rises || places.back() >= static_cast<std::size_t>(columns.count())) {
        reader.fail(concat("place ", places.back(), " is beyond the last or out of order"));
      }
    }
    reader.align();
    std::size_t place = 0;
    std::size_t next = 0;
    columns.each_inside([&](std::size_t i) {
      const bool sent = next < places.size() && places[next] == place++;
      next += sent ? 1 : 0;
      row[i] = sent ? std::bit_cast<T>(reader.take<BitsOf<T>>()) : T{0};
    });
    take_others(columns, reader, row);
  }

  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    std::vector<std::pair<std::size_t, T>> kept;
    for (const Entry<T>& entry : chosen(std::span<const T>(row))) {
      kept.emplace_back(entry.column, row[entry.column]);
    }
    columns.each_inside([&](std::size_t i) { row[i] = T{0}; });
    for (const auto& [column, value] : kept) row[column] = value;
    return encoded_bytes(std::span<const T>(row));
  }

 private:
  template <typename T>
  struct Entry {
    BitsOf<T> magnitude;
    std::size_t place;  // among the columns inside
    std::size_t column;
  };

  int place_bits() const { return k == columns.count() ? 0 : bits_for(columns.count()); }

  /// Returns the chosen entries in order of their places.
  template <typename T>
  std::vector<Entry<T>> chosen(std::span<const T> row) const {
    std::vector<Entry<T>> entries;
    entries.reserve(static_cast<std::size_t>(columns.count()));
    columns.each_inside([&](std::size_t i) {
      entries.push_back({static_cast<BitsOf<T>>(bits_of(row[i]) << 1), entries.size(), i});
    });
    const auto is_larger = [](const Entry<T>& a, const Entry<T>& b) {
      return a.magnitude != b.magnitude ? a.magnitude > b.magnitude : a.place < b.place;
    };
    const auto count = static_cast<std::size_t>(k);
    if (count < entries.size()) {
      std::nth_element(entries.begin(), entries.begin() + k, entries.end(), is_larger);
      entries.resize(count);
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry<T>& a, const Entry<T>& b) { return a.place < b.place; });
    return entries;
  }
};

}  // namespace fedhpc
