#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/rounds/partial_round.hpp"

namespace fedhpc {

/// A checkpoint is of a newer version of fedhpc than this one.
class NewerVersion : public DataError {
 public:
  using DataError::DataError;
};

/// A run goes on from this; it stands in a checkpoint. The same on every rank.
struct Resumption {
  std::string checkpoint;           ///< path
  std::string config;               ///< resolved INI of the run
  std::string started;              ///< as identity_of() has it
  std::int64_t round = 0;           ///< rounds done
  std::int64_t block = 1;           ///< clients trained together
  std::int64_t diverged_since = 0;  ///< the round in which it began to diverge; 0: none
  bool holds_initial_model = false;
  bool of_own_code = false;   ///< its method is of a plug-in or in Python
  bool evaluated = true;      ///< the last of the rounds done
  bool inside_round = false;  ///< the next round has begun
};

/// Reads the resumption of a run from a checkpoint. Throws DataError for a file that is not a whole
/// checkpoint, NewerVersion for one that a newer version wrote.
Resumption read_resumption(const std::string& path, const Tick& tick = {});

/// Puts an experiment into the state of a checkpoint: rank 0 reads, every rank gets what it needs.
/// Collective. Throws DataError, the same on every rank, for a checkpoint of another model or other
/// data.
void read_state(const Resumption& from, Communicator& comm, Experiment& experiment);

/// Throws Error unless a file holds a whole checkpoint of this experiment after `round`. One rank
/// calls it.
void check_checkpoint(const std::string& path, std::int64_t round, Experiment& experiment,
                      const Tick& tick = {});

/// Returns the bytes of an experiment's state in a checkpoint. Collective.
StateBytes state_bytes(Experiment& experiment, Communicator& comm);

/// Writes checkpoints of a run beside its result file. Each is complete: the run can go on from it
/// alone. The last two are kept.
class Checkpointer {
 public:
  /// `from` is the checkpoint this run went on from, if any.
  Checkpointer(Experiment& experiment, Communicator& comm, const Resumption* from = nullptr);

  /// True if this rank wants a checkpoint after a round (run.checkpoint_every).
  bool due(std::int64_t round) const;
  /// Writes the state after `round`. `results` is the result file with all of its rounds, on rank
  /// 0. Collective. Throws Error when it cannot be written or has no room; nothing is left of it
  /// then.
  void write(std::int64_t round, const h5::Handle* results);
  /// Removes all checkpoints of the run but the newest.
  void keep_newest() const;

 private:
  using Clock = std::chrono::steady_clock;

  void write_file(const std::string& path, std::int64_t round, const h5::Handle* results,
                  const ModelRecord& model, const std::optional<PackedRound>& partial);
  /// Throws Error, on all ranks, where a state is visited that was not visited before a round.
  void refuse_late_states(const std::set<std::string>& names) const;
  /// What a checkpoint lacks, in words; empty where there is room.
  std::string lacking_room(const std::string& path, const h5::Handle& results,
                           std::int64_t state_bytes, const ModelRecord& model) const;
  /// Whether the checkpoint after the last round, which a run does without, lacks something on any
  /// rank, which warns of it. Collective.
  bool is_left_out(const std::string& lacking) const;

  Experiment& experiment_;
  Communicator& comm_;
  std::string results_;            // path
  std::set<std::string> states_;   // that are visited before a round
  std::vector<std::string> kept_;  // newest last
  Clock::time_point written_ = Clock::now();
  Clock::duration took_{};
};

}  // namespace fedhpc
