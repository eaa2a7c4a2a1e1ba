#include "fedhpc/core/error.hpp"

#include <cctype>

namespace fedhpc {

std::string one_line(std::string text) {
  for (char& letter : text) {
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = ' ';
  }
  return text;
}

void require(bool condition, const char* what, const char* file, int line, const char* function) {
  if (condition) return;
  throw std::logic_error(
      concat("internal error: ", what, " (", file, ":", line, ", ", function, ")"));
}

}  // namespace fedhpc
