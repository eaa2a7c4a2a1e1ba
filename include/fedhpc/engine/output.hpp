#pragma once

#include <cstdint>
#include <string>

#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/io/file_lock.hpp"

namespace fedhpc {

/// What becomes of an earlier result in the place of run.output.
enum class Earlier {
  Replace,  ///< it is the same run's, or the user wants it so
  SetAside  ///< it gets another name, with its checkpoints
};

/// The right to write a result file and all that lies beside it: to be taken before anything is
/// looked at, and kept until nothing is written any more. Throws ConfigError where another process
/// has it. For one rank.
LockFile claim_output(const std::string& output);

/// Throws ConfigError if run.output is no place for a result file: a missing folder, a folder
/// itself, no permission, a name of files that runs make beside it, a file this run reads
/// (`configuration` is the path of one) or another program has open. Returns a warning where
/// `claim`, the right to write it, could not be taken.
[[nodiscard]] std::string check_output(const Config& config, const std::string& configuration,
                                       const LockFile& claim);

/// Bytes of what a checkpoint holds beside the result file, on all ranks.
struct StateBytes {
  std::int64_t now = 0;
  std::int64_t full = 0;  ///< once every client is written
};

/// Bytes that a run still takes in the folder of its result file.
struct RoomNeeded {
  double first = 0;  ///< until its first checkpoint is written, and by its final models
  double all = 0;    ///< at most, with all its rounds and checkpoints
};

/// `written`: bytes of the result file before its first round.
RoomNeeded room_needed(const Experiment& experiment, std::int64_t rounds_left, std::int64_t written,
                       const StateBytes& state);

/// Throws ConfigError where a run cannot get as far as its first checkpoint in `left` bytes.
/// Returns a warning where its end may not fit.
[[nodiscard]] std::string check_room(const Config& config, const RoomNeeded& needed,
                                     std::int64_t left);

/// What goes on with a run that could not write a file, depending on its checkpoints.
std::string way_on(const std::string& results);

}  // namespace fedhpc
