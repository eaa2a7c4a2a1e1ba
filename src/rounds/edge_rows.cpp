#include "fedhpc/rounds/edge_rows.hpp"

#include "fedhpc/core/error.hpp"

namespace fedhpc {

EdgeRows operator-(const EdgeRows& a, const EdgeRows& b) {
  require(a.first == b.first, "rows of the same edges");
  return {a.rows - b.rows, a.first};
}

EdgeRows operator+(const EdgeRows& a, const EdgeRows& b) {
  require(a.first == b.first, "rows of the same edges");
  return {a.rows + b.rows, a.first};
}

EdgeRows& operator+=(EdgeRows& a, const EdgeRows& b) {
  require(a.first == b.first, "rows of the same edges");
  a.rows += b.rows;
  return a;
}

}  // namespace fedhpc
