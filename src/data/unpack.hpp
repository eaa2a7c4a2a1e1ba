#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fedhpc {

/// Unpacks data in memory; `path` is for messages. Each throws DataError naming the file and the
/// offset in it where truncated or corrupt data stopped the unpacking. For data that unpack to more
/// than a hundred times their size and 64 MiB it names that size.

/// Unpacks all members of a gzip file.
std::vector<std::uint8_t> unpack_gzip(std::span<const std::uint8_t> packed,
                                      const std::string& path);

/// Unpacks all streams of an xz file. Takes at most half a GiB besides the result.
std::vector<std::uint8_t> unpack_xz(std::span<const std::uint8_t> packed, const std::string& path);

/// Unpacks one zlib stream that stands at `offset` of a file and must end where `packed` does.
std::vector<std::uint8_t> unpack_zlib(std::span<const std::uint8_t> packed, std::size_t offset,
                                      const std::string& path);

}  // namespace fedhpc
