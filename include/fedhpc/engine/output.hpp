#pragma once

#include <cstdint>
#include <string>

#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/io/file_lock.hpp"

namespace fedhpc {

/// The fate of an earlier result in the place of run.output.
enum class Earlier {
  Replace,   ///< it belongs to the same run, or the user wants it replaced
  SetAside,  ///< it gets another name, with its checkpoints
  Keep  ///< the run goes on with it; where it is complete, nothing is left to do; another is set aside
};

/// Claims the right to write a result file and all that lies beside it. Take it before looking at
/// anything, and keep it until the last write. Throws ConfigError where another process has it. One
/// rank calls it.
LockFile claim_output(const std::string& output);

/// Throws ConfigError if run.output is no place for a result file: a missing folder, a folder
/// itself, or no permission. Nor may it have the name of files that runs make beside it. This run
/// must not read it (`configuration` is the path of one such file), no program have it open.
/// Returns a warning where `claim`, the right to write it, could not be taken.
[[nodiscard]] std::string check_output(const Config& config, const std::string& configuration,
                                       const LockFile& claim);

/// Bytes a checkpoint holds beside the result file, on all ranks.
struct StateBytes {
  std::int64_t now = 0;
  std::int64_t full = 0;  ///< once every client is written
};

/// Bytes that a run still takes in the folder of its result file.
struct RoomNeeded {
  double first = 0;  ///< until its first checkpoint is written, and by its final models
  double all = 0;    ///< at most, with all its rounds and checkpoints
};

/// `written` counts the bytes of the result file before its first round.
RoomNeeded room_needed(const Experiment& experiment, std::int64_t rounds_left, std::int64_t written,
                       const StateBytes& state);

/// Throws ConfigError where `left` bytes do not carry a run to its first checkpoint. Returns a
/// warning where its end may not fit.
[[nodiscard]] std::string check_room(const Config& config, const RoomNeeded& needed,
                                     std::int64_t left);

/// Tells how a run that could not write a file goes on, depending on its checkpoints.
std::string way_on(const std::string& results);

}  // namespace fedhpc
