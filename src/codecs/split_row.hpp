#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "fedhpc/codecs/compressors.hpp"

#include "codecs/bits.hpp"

namespace fedhpc {

/// A format compresses the columns inside; the others are sent as they are, behind them.
class SplitRow {
 public:
  explicit SplitRow(ColumnRanges inside) : inside_(std::move(inside)) {
    for (const auto& [begin, end] : inside_) count_ += end - begin;
  }

  const ColumnRanges& ranges() const { return inside_; }
  std::int64_t count() const { return count_; }  ///< columns inside

  /// Calls visit(column) for the columns inside, in order.
  template <typename Visit>
  void each_inside(Visit&& visit) const {
    for (const auto& [begin, end] : inside_) each(begin, end, visit);
  }
  /// Calls visit(column) for the other columns of a row of `size`.
  template <typename Visit>
  void each_outside(std::size_t size, Visit&& visit) const {
    std::int64_t next = 0;
    for (const auto& [begin, end] : inside_) {
      each(next, begin, visit);
      next = end;
    }
    each(next, static_cast<std::int64_t>(size), visit);
  }

 private:
  template <typename Visit>
  static void each(std::int64_t begin, std::int64_t end, Visit&& visit) {
    for (std::int64_t i = begin; i < end; ++i) visit(static_cast<std::size_t>(i));
  }

  ColumnRanges inside_;
  std::int64_t count_ = 0;
};

/// The columns outside.
template <typename T>
void append_others(const SplitRow& columns, std::span<const T> row, BitWriter& writer) {
  columns.each_outside(row.size(), [&](std::size_t i) { writer.append(bits_of(row[i])); });
}

template <typename T>
void take_others(const SplitRow& columns, BitReader& reader, std::span<T> row) {
  columns.each_outside(row.size(),
                       [&](std::size_t i) { row[i] = std::bit_cast<T>(reader.take<BitsOf<T>>()); });
}

template <typename T>
std::int64_t bytes_of_others(const SplitRow& columns, std::span<const T> row) {
  return (static_cast<std::int64_t>(row.size()) - columns.count()) *
         static_cast<std::int64_t>(sizeof(T));
}

}  // namespace fedhpc
