#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fedhpc {

/// The whole content of a file, unpacked when its name ends in ".gz". Throws DataError naming the
/// file and, for a truncated or corrupt archive, the offset in the packed file where unpacking
/// stopped.
std::vector<std::uint8_t> read_bytes(const std::string& path);

}  // namespace fedhpc
