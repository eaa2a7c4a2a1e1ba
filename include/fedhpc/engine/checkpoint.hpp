#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

/// Where a run goes on: what its checkpoint says of it. The same on every rank.
struct Resumption {
  std::string checkpoint;  ///< path
  std::string config;      ///< resolved INI of the run
  std::string started;     ///< when the run first began: tells it from others of the same name
  std::int64_t round = 0;  ///< rounds done
  std::int64_t block = 1;  ///< clients in hand at a time
  bool holds_initial_model = false;
};

/// Reads what a checkpoint says of its run. Throws DataError for a file that is not a whole
/// checkpoint, or one of a newer version.
Resumption read_resumption(const std::string& path);

/// Puts an experiment into the state that a checkpoint holds: rank 0 reads, every rank gets what it
/// needs. Collective. Throws DataError, the same on every rank, for a checkpoint of another model
/// or other data.
void read_state(const Resumption& from, Communicator& comm, Experiment& experiment);

/// Throws Error unless a file holds a whole checkpoint of this experiment after `round`. For one
/// rank.
void check_checkpoint(const std::string& path, std::int64_t round, Experiment& experiment);

/// What the state of an experiment takes in a checkpoint. Collective.
StateBytes state_bytes(Experiment& experiment, Communicator& comm);

/// Writes checkpoints of a run beside its result file: complete ones, from which alone the run can
/// go on. The last two are kept.
class Checkpointer {
 public:
  /// `from`: the checkpoint this run went on from, if any.
  Checkpointer(Experiment& experiment, Communicator& comm, const Resumption* from = nullptr);

  /// Whether this rank wants a checkpoint after a round (run.checkpoint_every).
  bool due(std::int64_t round) const;
  /// Writes the state after `round`. `results`: the result file with all of its rounds, on rank 0.
  /// Collective. Throws Error when there is no room for it or it cannot be written; nothing is left
  /// of it then.
  void write(std::int64_t round, const h5::Handle* results);
  /// Removes all checkpoints of the run but the newest.
  void keep_newest() const;

 private:
  using Clock = std::chrono::steady_clock;

  void write_file(const std::string& path, std::int64_t round, const h5::Handle* results,
                  const ModelRecord& model);
  void check_room(const std::string& path, const h5::Handle& results, std::int64_t state_bytes,
                  const ModelRecord& model) const;

  Experiment& experiment_;
  Communicator& comm_;
  std::string results_;            // path
  std::vector<std::string> kept_;  // newest last
  Clock::time_point written_ = Clock::now();
  Clock::duration took_{};
};

}  // namespace fedhpc
