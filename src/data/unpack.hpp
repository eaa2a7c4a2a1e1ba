#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fedhpc {

/// Unpacks data in memory; `path` is for messages. Each throws DataError naming the file and the
/// offset in it where truncated or corrupt data stopped the unpacking, or the size of what unpacks
/// to more than a hundred times its size and 64 MiB.

/// All members of a gzip file.
std::vector<std::uint8_t> unpack_gzip(std::span<const std::uint8_t> packed,
                                      const std::string& path);

/// All streams of an xz file. Takes at most half a GiB besides the result.
std::vector<std::uint8_t> unpack_xz(std::span<const std::uint8_t> packed, const std::string& path);

/// One zlib stream that stands at `offset` of a file and must end where `packed` does.
std::vector<std::uint8_t> unpack_zlib(std::span<const std::uint8_t> packed, std::size_t offset,
                                      const std::string& path);

}  // namespace fedhpc
