#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/io/results_writer.hpp"

namespace fedhpc {

struct Resumption;

/// Writes an experiment into its result file, on rank 0. Other ranks only take part in gathering.
class Recorder {
 public:
  /// Creates the file with all that is known before the first round. With `from` it holds all that
  /// the checkpoint holds, and takes the place of the file there. `earlier` decides what becomes of
  /// that file. Collective. Throws ConfigError, the same on every rank, when run.output cannot be
  /// written or has no room; nothing is changed then. A warning says so where only its end may have no
  /// room.
  Recorder(Experiment& experiment, Communicator& comm, const std::string& command_line,
           const Resumption* from = nullptr, Earlier earlier = Earlier::Replace);

  /// On rank 0: the name an earlier result got, or nothing.
  const std::string& earlier_result() const { return earlier_result_; }
  /// Of every rank.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// On rank 0: the bytes booked in the rounds before this part of the run.
  double bytes_before() const { return bytes_before_; }

  /// Records one round, and the model after the last evaluation of a run.
  void record(const RoundReport& report);
  /// Writes the model of a run that stops before its last round and, where run.save has them, the
  /// clients' own unless it stops inside a round. Collective.
  void write_models(const ModelRecord& model, bool personal);
  /// Writes the clients' own models, where run.save has them. Collective.
  void write_personal_models();
  /// Sets the status "complete", "diverged" or "interrupted".
  void finish(const std::string& status);
  /// Sets the status "failed"; a failure to do so is not reported.
  void fail() noexcept;
  /// The file on rank 0, nullptr elsewhere.
  const h5::Handle* file() const { return writer_ ? &writer_->file() : nullptr; }

 private:
  void write_parts(const ModelRecord& model);
  /// Writes the data's names of classes and clients.
  void write_names();
  RunHeader header(const std::string& command_line) const;
  ClientTable clients() const;
  /// Makes the file and everything in it.
  void create(const std::string& command_line, const Resumption* from, const Tick& tick);
  void check_room(const StateBytes& state, const Resumption* from, Earlier earlier);
  void start(const Resumption* from, Earlier earlier);

  const Experiment& experiment_;
  Stopwatch io_watch_;
  std::unique_ptr<ResultsWriter> writer_;  // rank 0 only
  std::vector<std::string> hosts_;
  std::string earlier_result_;
  double bytes_before_ = 0;
};

/// Calls `work`, which writes a file of the run with the result file `results`; its Error then
/// names the file and what to do.
void naming_file(const std::string& path, const std::string& results,
                 const std::function<void()>& work);

}  // namespace fedhpc
