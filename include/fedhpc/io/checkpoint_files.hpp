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

/// RUN.ckpt.ROUND.h5 beside the result file RUN.h5 (or RUN, of any name).
std::string checkpoint_path(const std::string& results, std::int64_t round);

/// The checkpoints beside a result file, newest (of the highest round) first.
std::vector<CheckpointFile> checkpoints_of(const std::string& results);

/// The result file a checkpoint belongs to, and its round; an empty path if `path` is not named
/// like a checkpoint.
CheckpointFile results_of_checkpoint(const std::string& path);

/// RUN.lock beside the result file RUN.h5: of whoever writes it, its checkpoints and their
/// temporary files.
std::string lock_path(const std::string& results);

/// Whether a result file of this name would be taken for a file that a run makes beside another.
bool is_name_beside(const std::string& results);

/// Gives an earlier result file RUN.h5 the name RUN.old1.h5, or the next number that is free, and
/// its checkpoints of rounds after `after` theirs beside it. Returns the new name, or nothing where
/// nothing was there. Throws Error.
std::string set_aside(const std::string& results, std::int64_t after = -1);

/// Removes the checkpoints beside a result file, and what is left of unfinished ones, but for those
/// in `keep`. What cannot be removed stays.
void remove_checkpoints(const std::string& results, const std::vector<std::string>& keep);

}  // namespace fedhpc
