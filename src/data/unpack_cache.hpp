#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fedhpc {

// Unpacked copies of large .xz files, which take ten times as long to unpack as to read. A copy is
// called NAME.unpacked and stands beside the file if its folder may be written, else in
// $XDG_CACHE_HOME/fedhpc or ~/.cache/fedhpc. The environment variable FEDHPC_CACHE names another
// folder, or `off`. A copy holds size and time of its file and a digest of its content: one that
// does not fit is not used, and replaced.

/// Returns the content of a packed file from a sound copy, if there is one.
std::optional<std::vector<std::uint8_t>> unpacked_copy(const std::string& path);

/// Keeps the content of a packed file in a copy, if it is large and there is a place. Several
/// processes may do so at once: a copy appears whole or not at all.
void keep_unpacked(const std::string& path, std::span<const std::uint8_t> content);

}  // namespace fedhpc
