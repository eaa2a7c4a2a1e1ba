#include "fedhpc/core/error.hpp"

namespace fedhpc {

void require(bool condition, const char* what, std::source_location place) {
  if (condition) return;
  throw std::logic_error(concat("internal error: ", what, " (", place.file_name(), ":",
                                place.line(), ", ", place.function_name(), ")"));
}

}  // namespace fedhpc
