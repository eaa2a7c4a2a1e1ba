#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fedhpc {

/// The name and round of a checkpoint beside a result file.
struct CheckpointFile {
  std::string path;
  std::int64_t round = 0;
};

/// Returns RUN.ckpt.ROUND.h5 beside the result file RUN.h5 (or RUN, of any name).
std::string checkpoint_path(const std::string& results, std::int64_t round);

/// Lists the checkpoints beside a result file, newest (of the highest round) first.
std::vector<CheckpointFile> checkpoints_of(const std::string& results);

/// Returns the result file a checkpoint belongs to, and its round; an empty path if `path` is not
/// named like a checkpoint.
CheckpointFile results_of_checkpoint(const std::string& path);

/// Returns RUN.lock beside the result file RUN.h5. Its holder writes the result file, its
/// checkpoints and their temporary files.
std::string lock_path(const std::string& results);

/// Returns RUN for the result file RUN.h5, and RUN.h5 for RUN: of both, checkpoints and lock have the
/// same names.
std::string of_the_same_checkpoints(const std::string& results);

/// True if a result file of this name looks like a file that a run makes beside another.
bool is_name_beside(const std::string& results);

/// Renames an earlier result file RUN.h5 to RUN.old1.h5, or the next number that is free. Renames
/// its checkpoints of rounds after `after` alike. Returns the new name, or nothing where nothing
/// was there. Throws Error.
std::string set_aside(const std::string& results, std::int64_t after = -1);

/// Removes the checkpoints beside a result file, and remains of unfinished ones, but for those in
/// `keep`. What cannot be removed stays.
void remove_checkpoints(const std::string& results, const std::vector<std::string>& keep);

}  // namespace fedhpc
