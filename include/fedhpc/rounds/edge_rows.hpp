#pragma once

#include <cstdint>

#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Holds the models of the edges one rank hosts or shares: row i is that of edge first + i. The
/// ranks of one edge hold the same row.
struct EdgeRows {
  Rows rows;  // [edges of this rank, P]
  std::int64_t first = 0;

  std::int64_t count() const { return rows.count(); }
  EdgeRows clone() const { return {rows.clone(), first}; }
  /// Returns the row of one of these edges, in the same memory, [1, P].
  Rows of(std::int64_t edge) const { return {rows.values.narrow(0, edge - first, 1), rows.layout}; }
};

/// Subtract and add edge by edge.
EdgeRows operator-(const EdgeRows& a, const EdgeRows& b);
EdgeRows operator+(const EdgeRows& a, const EdgeRows& b);
EdgeRows& operator+=(EdgeRows& a, const EdgeRows& b);

}  // namespace fedhpc
