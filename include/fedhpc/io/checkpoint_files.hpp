#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fedhpc {

/// A checkpoint beside a result file, by name.
struct CheckpointFile {
  std::string path;
  std::int64_t round = 0;
};

/// RUN.ckpt.<round>.h5 beside the result file RUN.h5 (or RUN, of any name).
std::string checkpoint_path(const std::string& results, std::int64_t round);

/// The checkpoints beside a result file, newest (of the highest round) first.
std::vector<CheckpointFile> checkpoints_of(const std::string& results);

/// The result file a checkpoint belongs to, and its round; an empty path if `path` is not named
/// like a checkpoint.
CheckpointFile results_of_checkpoint(const std::string& path);

/// Removes the checkpoints beside a result file, and what is left of unfinished ones, but for those
/// in `keep`. What cannot be removed stays.
void remove_checkpoints(const std::string& results, const std::vector<std::string>& keep);

}  // namespace fedhpc
