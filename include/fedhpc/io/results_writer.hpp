#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/metric.hpp"
#include "fedhpc/core/named_tensor.hpp"
#include "fedhpc/io/digests.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/file_lock.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

/// The way others read a result file that is still written (run.live).
enum class LiveMode {
  Auto,  ///< Swmr, but Flush where the file system does not keep the order of writes
  Swmr,  ///< at any time, by SWMR
  Flush  ///< as of the last round, by any reader, once nobody writes it any more
};

/// Root attributes of a result file.
struct RunHeader {
  std::string config;  ///< resolved INI
  std::string command_line;
  std::int64_t seed = 0;
  std::int64_t ranks = 1;
  std::string processor;  ///< of all ranks, as with_added() has them
  std::string device;
  std::int64_t block = 1;
  Digests digests{};
  std::vector<std::string> hostnames;  ///< of every rank
};

/// The clients as known before the first round.
struct ClientTable {
  std::vector<std::int32_t> edge;                  // [N]
  std::vector<std::int64_t> train_samples;         // [N]
  std::vector<std::int64_t> test_samples;          // [N]
  std::vector<std::int64_t> validation_samples{};  // [N], or empty when no samples are set aside
  std::int64_t classes = 0;                        // K
  std::string measure = "accuracy";                // what clients are compared by
};

/// Writes one result file from one rank. The file grows under the name PATH.tmp until `start()`
/// puts it in its place. Everything is created before that; from then on it can be read while it
/// grows (SWMR), and after a kill. /rounds/round is the commit record: a round counts once its
/// entry there is flushed. All failures throw Error naming the file.
class ResultsWriter {
 public:
  /// Makes a new file without rounds.
  ResultsWriter(const std::string& path, LiveMode live, const RunHeader& header,
                const std::vector<Metric>& series, const ClientTable& clients);
  /// Makes a file that goes on where `earlier`, a result file or a checkpoint, ends. It has all of
  /// it but /state, the groups `but` and the attributes of `header`. What was never written stays
  /// so. A series that `earlier` lacks is NaN in its rounds.
  ResultsWriter(const std::string& path, LiveMode live, const RunHeader& header,
                const std::vector<Metric>& series, const h5::Handle& earlier,
                const std::vector<std::string>& but = {});
  ResultsWriter(const ResultsWriter&) = delete;
  ResultsWriter& operator=(const ResultsWriter&) = delete;

  /// The open file, for groups written by others before start().
  const h5::Handle& file() const { return file_; }
  /// Writes the label counts [count, K] int64 of clients first to first + count - 1; of a new file,
  /// before start().
  void write_label_histogram(std::int64_t first, const Tensor& counts);
  /// Reserves /model/GROUP in the shapes and types of `parameters`, where it is not there yet;
  /// before start().
  void declare_model(const std::string& group, const std::vector<NamedTensor>& parameters);
  /// Reserves /model/personal, one row per client before each parameter's own shape; before
  /// start().
  void declare_personal(std::int64_t clients, const std::vector<NamedTensor>& parameters);
  /// Reserves /draws/cohort [0, size], a row per round, where it is not there yet, filled up with
  /// -1 in a round of fewer participants; before start().
  void declare_cohorts(std::int64_t size);
  /// Reserves /draws/factors/NAME [0, ...] for tensors of these shapes, where they are not there
  /// yet.
  void declare_draws(const std::vector<NamedTensor>& draws);
  /// Puts the file in its place and lets readers in. Nothing can be created after this.
  void start();

  /// Appends the measure of all clients after `round`, [N], NaN without test samples, and each
  /// client's best.
  void append_client_scores(std::int64_t round, const std::vector<double>& now,
                            const std::vector<double>& best);
  void append_cohort(const std::vector<std::int64_t>& cohort);
  /// Appends one row to each of them.
  void append_draws(const std::vector<NamedTensor>& draws);
  void write_model(const std::string& group, const std::vector<NamedTensor>& parameters);
  /// Writes one client's own model below /model/personal.
  void write_personal(std::int64_t client, const std::vector<NamedTensor>& parameters);
  /// To be called when the last client's is written. Readers may take the values that stand behind
  /// the end of the file, as its first bytes tell that, for damage.
  void models_written();
  /// Appends and commits one round; `values` in order of the series. Throws Error, as finish()
  /// does, when the file is no longer where its readers look for it.
  void append_round(std::int64_t round, const std::vector<double>& values);
  /// Sets status and finished.
  void finish(const std::string& status);

 private:
  ResultsWriter(const std::string& path, LiveMode live);
  void write_header(const RunHeader& header);
  void write_clients(const ClientTable& clients);
  void open_series(const std::vector<Metric>& series);
  void open_clients(hsize_t count);
  /// Throws Error when the file is no longer where its readers look for it.
  void check_it_is_there();

  std::string path_;
  Unfinished unfinished_;       // until it is started
  FileId id_;                   // under path_, once it is started
  std::uintmax_t largest_ = 0;  // bytes that the file has had
  bool lost_ = false;           // others have written it: HDF5 would read what is no more
  bool swmr_;
  h5::Handle file_;
  FileLock lock_;  // HDF5 drops its own when it lets readers in
  h5::Handle round_;
  std::vector<h5::Handle> series_;
  std::vector<h5::Handle> left_;  // series of an earlier start alone: NaN from here on
  h5::Handle label_histogram_;
  h5::Handle client_scores_;
  h5::Handle evaluated_rounds_;
  h5::Handle best_scores_;
  h5::Handle cohorts_;
  std::vector<std::pair<NamedTensor, h5::Handle>> draws_;  // as they were declared
  std::int64_t cohort_size_ = 0;
  std::map<std::string, std::vector<std::pair<std::string, h5::Handle>>> model_;  // by group
  std::vector<std::pair<std::string, h5::Handle>> personal_;
};

/// Writes parameters below `group` of an open file.
void write_parameters(const h5::Handle& file, const std::string& group,
                      const std::vector<NamedTensor>& parameters);

/// Reads the resolved INI of a result file or checkpoint.
std::string read_config(const h5::Handle& file);

/// Returns the time now, as 2026-01-31T12:00:00Z.
std::string utc_now();

/// Returns 16 drawn hexadecimal digits, which tell runs apart that start within a second.
std::string new_run_id();

/// Returns what tells the run of a result file or of a checkpoint from all others: when it started,
/// and its id where the file has one.
std::string identity_of(const h5::Handle& file);

}  // namespace fedhpc
