#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace fedhpc {

/// A sealed HDF5 file begins with a user block of this length. It holds, as text, the number of
/// bytes behind it and their CRC-64/XZ, then zeros.
constexpr std::size_t kSealBytes = 512;

enum class Seal {
  None,   ///< the file has no user block
  Whole,  ///< its bytes are those that were sealed
  Broken  ///< they are not
};

/// Called now and then while the bytes of a file are read: a rank tells the others that wait for it
/// that it gets on.
using Tick = std::function<void()>;

/// Seals a closed file that was made with a user block. Throws Error if it cannot be written.
void seal(const std::string& path, const Tick& tick = {});

/// Compares all bytes of a file with its seal. Throws Error if it cannot be read.
Seal check_seal(const std::string& path, const Tick& tick = {});

}  // namespace fedhpc
