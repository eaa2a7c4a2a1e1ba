#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/io/results_writer.hpp"

namespace fedhpc {

struct Resumption;

/// Writes an experiment into its result file, on rank 0; on other ranks only takes part in
/// gathering.
class Recorder {
 public:
  /// Creates the file with all that is known before the first round; `from`: with all that the
  /// checkpoint holds, which then takes the place of the file there. Collective. Throws
  /// ConfigError, the same on every rank, when run.output cannot be written.
  Recorder(const Experiment& experiment, Communicator& comm, const std::string& command_line,
           const Resumption* from = nullptr);

  /// Records one round; after the last evaluation of a run also the model.
  void record(const RoundReport& report);
  /// Writes the model that a run stops with before its last round.
  void write_model(const ModelRecord& model);
  /// Sets the status "complete" or "interrupted".
  void finish(const std::string& status);
  /// Sets the status "failed"; a failure to do so is not reported.
  void fail() noexcept;
  /// The file on rank 0, elsewhere nullptr.
  const h5::Handle* file() const { return writer_ ? &writer_->file() : nullptr; }

 private:
  void write_parts(const ModelRecord& model);
  /// What the method has drawn for a round's clients.
  std::vector<NamedTensor> draws_of(std::int64_t round) const;
  /// Collective.
  void write_personal_models();
  RunHeader header(const std::string& command_line, const std::vector<std::string>& hosts) const;
  ClientTable clients() const;
  /// Makes the file and everything in it.
  void create(const std::string& command_line, const std::vector<std::string>& hosts,
              const Resumption* from);

  const Experiment& experiment_;
  Stopwatch io_watch_;
  std::unique_ptr<ResultsWriter> writer_;  // rank 0 only
};

/// Calls `work`, which writes a file; its Error then names the file.
void naming_file(const std::string& path, const std::function<void()>& work);

/// Throws ConfigError if run.output is no place for a result file: a missing folder, a folder
/// itself, no permission, a file this run reads (`configuration` is the path of one) or another run
/// writes.
void check_output(const Config& config, const std::string& configuration);

}  // namespace fedhpc
