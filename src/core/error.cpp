#include "fedhpc/core/error.hpp"

namespace fedhpc {

void require(bool condition, const char* what, const char* file, int line, const char* function) {
  if (condition) return;
  throw std::logic_error(
      concat("internal error: ", what, " (", file, ":", line, ", ", function, ")"));
}

}  // namespace fedhpc
