#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace fedhpc {

/// Numbers first to last - 1. Kernels of a device read it as two int64.
struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;

  std::int64_t size() const { return last - first; }
  bool holds(std::int64_t i) const { return first <= i && i < last; }
  friend auto operator<=>(const Range&, const Range&) = default;
};

/// Columns of a row.
using ColumnRanges = std::vector<Range>;

}  // namespace fedhpc
