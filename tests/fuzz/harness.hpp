#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fedhpc/core/error.hpp"

namespace fedhpc::fuzz {

/// Runs a reader on the input: it returns or throws a Refusal, whatever the bytes are. Anything
/// else ends the program, which libFuzzer reports with the input.
template <typename Refusal = DataError, typename Read>
int read(const std::uint8_t* data, std::size_t size, const Read& reader) {
  try {
    reader(std::span<const std::uint8_t>(data, size));
  } catch (const Refusal&) {
  }
  return 0;
}

/// What must hold of what a reader returns.
inline void expect(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace fedhpc::fuzz
