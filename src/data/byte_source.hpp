#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fedhpc {

/// Returns the whole content of a file, unpacked when its name ends in ".gz" or ".xz". Throws
/// DataError naming the file and, for a truncated or corrupt archive, the offset in the packed file
/// where unpacking stopped.
std::vector<std::uint8_t> read_bytes(const std::string& path);

/// Reads several files at once, a thread for each: unpacking takes longer than reading.
std::vector<std::vector<std::uint8_t>> read_bytes(const std::vector<std::string>& paths);

/// Finds the file `name`, `name`.gz or `name`.xz in `directory`/`folder` or in `directory` itself.
/// Throws DataError naming `dataset`, the paths tried and how to get the file.
std::string locate(const std::string& directory, const std::string& folder, const std::string& name,
                   const std::string& dataset);

}  // namespace fedhpc
