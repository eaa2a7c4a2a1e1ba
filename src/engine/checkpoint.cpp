#include "fedhpc/engine/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include <ATen/ops/full.h>

#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/engine/recorder.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/seal.hpp"

#include "engine/partial_file.hpp"
#include "engine/state_file.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kSlack = 256 * 1024;               // bytes: what HDF5 itself takes
constexpr const char* kPartition = "partition";           // attribute of /state: its digest
constexpr const char* kDivergedSince = "diverged_since";  // attribute of /state
constexpr const char* kData = "data_digest";              // attribute of the file
constexpr const char* kModel = "model_digest";            // attribute of the file
constexpr std::size_t kKept = 2;
constexpr std::chrono::seconds kInterval{60};
constexpr int kShareOfTime = 20;  // writing takes at most this fraction of a run

/// Whether version a, "1.2.3", is newer than b.
bool newer(const std::string& a, const std::string& b) {
  const auto numbers = [](const std::string& version) {
    std::array<int, 3> parts{};
    std::sscanf(version.c_str(), "%d.%d.%d", &parts[0], &parts[1], &parts[2]);
    return parts;
  };
  return numbers(a) > numbers(b);
}

/// Writes which round a state is of, and whose samples clients have.
void write_origin(const h5::Handle& state, std::int64_t round, std::int64_t diverged_since,
                  const Partition& partition) {
  h5::write_attribute(state, "round", round);
  h5::write_attribute(state, kDivergedSince, diverged_since);
  h5::write_attribute(state, kPartition, digest_of(partition));
}

/// Throws DataError unless the data at hand are those a checkpoint was made with.
void check_data(const h5::Handle& file, const std::string& path, const Parts& parts) {
  const Partition& partition = parts.partition;
  const auto train = h5::read_vector<std::int64_t>(file, "/clients/train_samples");
  const auto test = h5::read_vector<std::int64_t>(file, "/clients/test_samples");
  const std::int64_t clients = partition.clients();
  bool same = static_cast<std::int64_t>(train.size()) == clients && test.size() == train.size();
  for (std::int64_t c = 0; same && c < clients; ++c) {
    const auto i = static_cast<std::size_t>(c);
    same = train[i] == partition.train.count(c) && test[i] == partition.test.count(c);
  }
  const auto refuse_unless = [&](bool as_before, const char* difference) {
    if (as_before) return;
    throw DataError(concat("checkpoint '", path, "' was made with other data: its clients have ",
                           difference, " samples; give the data of that run"));
  };
  refuse_unless(same, "other numbers of");
  refuse_unless(!h5::has_attribute(file, kData) ||  // of fedhpc before it had one
                    h5::read_text_attribute(file, kData) == parts.data_digest,
                "other");
  const h5::Handle state = h5::open_group(file, "/state");
  if (!h5::has_attribute(state, kPartition)) return;  // of fedhpc before it had one
  refuse_unless(h5::read_text_attribute(state, kPartition) == digest_of(partition), "other");
}

/// Throws DataError unless the model file at hand computes what that of the checkpoint did.
void check_model(const h5::Handle& file, const std::string& path, const Parts& parts) {
  if (!h5::has_attribute(file, kModel)) return;  // of another model, or of fedhpc before it had one
  if (h5::read_text_attribute(file, kModel) == parts.model_digest) return;
  throw DataError(concat("checkpoint '", path, "' was made with another model: model.file '",
                         parts.config.model.file, "' had other layers; give the file of that run"));
}

/// Throws DataError unless a checkpoint holds all that the result file goes on with.
void check_records(const h5::Handle& file, const Resumption& from, const Experiment& experiment) {
  const auto clients = static_cast<hsize_t>(experiment.partition().clients());
  const auto refuse = [&](const std::string& name, const std::string& problem) {
    throw DataError(concat("checkpoint '", from.checkpoint, "' cannot be used: data set '", name,
                           "' ", problem, "; give RUN.ckpt.N.h5 as fedhpc run wrote it"));
  };
  const auto look = [&](const std::string& name, const std::vector<hsize_t>& tail) {
    if (!h5::exists(file, name)) refuse(name, "is missing");
    const h5::Handle dataset = h5::open_dataset(file, name);
    const std::vector<hsize_t> shape = h5::shape_of(dataset);
    if (!h5::holds_numbers(dataset)) refuse(name, "holds no numbers");
    if (shape.size() != tail.size() + 1 ||
        !std::equal(tail.begin(), tail.end(), shape.begin() + 1)) {
      refuse(name, "has another shape");
    }
    if (!h5::extendible(dataset)) refuse(name, "cannot be extended");
    return static_cast<std::int64_t>(shape.front());
  };
  std::vector<std::string> series{"round"};
  for (const Metric& metric : experiment.series()) series.push_back(metric.name);
  for (const std::string& name : series) {
    const std::string path = "/rounds/" + name;
    if (look(path, {}) != from.round) refuse(path, concat("has not ", from.round, " entries"));
  }
  const std::string measure = measure_of(experiment.parts().loss);
  look("/clients/" + measure, {clients});
  look("/clients/evaluated_rounds", {});
  for (const std::string& name : {std::string("edge"), std::string("train_samples"),
                                  std::string("test_samples"), "best_" + measure}) {
    const std::string path = "/clients/" + name;
    if (!h5::exists(file, path)) refuse(path, "is missing");
    if (h5::shape_of(h5::open_dataset(file, path)) != std::vector<hsize_t>{clients}) {
      refuse(path, "has another shape");
    }
  }
  const RunOptions& run = experiment.config().run;
  if (run.saves("init") && !from.holds_initial_model) refuse("/model/init/global", "is missing");
  if (run.saves("draws") && !h5::exists(file, "/draws/cohort"))
    refuse("/draws/cohort", "is missing");
}

}  // namespace

Resumption read_resumption(const std::string& path, const Tick& tick) {
  const auto refuse = [&](const std::string& reason) -> DataError {
    return DataError(concat("checkpoint '", path, "' cannot be used: ", reason,
                            "; give RUN.ckpt.N.h5 as fedhpc run wrote it"));
  };
  try {
    // Before anything is taken from it: a byte that has changed may be a number of the model.
    const h5::Handle file = h5::open_whole(path, tick);
    if (!h5::exists(file, "/state") || !h5::exists(file, "/rounds/round")) {
      throw refuse("it is not a checkpoint of fedhpc");
    }
    const std::string version = h5::read_text_attribute(file, "fedhpc_version");
    if (newer(version, build_info().version)) {
      throw DataError(concat("checkpoint '", path, "' was written by fedhpc ", version,
                             ", this is ", build_info().version,
                             "; use that version or a newer one"));
    }
    const h5::Handle state = h5::open_group(file, "/state");
    const bool tells = h5::has_attribute(state, kDivergedSince);  // older versions did not
    const std::int64_t diverged_since =
        tells ? h5::read_integer_attribute(state, kDivergedSince) : 0;
    return {.checkpoint = path,
            .config = read_config(file),
            .started = h5::read_text_attribute(file, "started"),
            .round = h5::read_integer_attribute(state, "round"),
            .block = h5::read_integer_attribute(file, "block"),
            .diverged_since = diverged_since,
            .holds_initial_model = h5::exists(file, "/model/init/global")};
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw refuse(error.what());
  }
}

void read_state(const Resumption& from, Communicator& comm, Experiment& experiment) {
  h5::Handle file;
  fail_together(comm, [&] {
    if (comm.rank() != 0) return;
    try {
      file = h5::open_whole(from.checkpoint, [&] { comm.progress(); });
      check_data(file, from.checkpoint, experiment.parts());
      check_model(file, from.checkpoint, experiment.parts());
      check_records(file, from, experiment);
      StateCheck check(file, from.checkpoint, experiment.parts().placement());
      experiment.visit_state(check);
    } catch (const DataError&) {
      throw;
    } catch (const Error& error) {
      throw DataError(concat("checkpoint '", from.checkpoint, "' cannot be used: ", error.what()));
    }
  });
  const h5::Handle* open = file ? &file : nullptr;
  StateReader reader(comm, open);
  experiment.visit_state(reader);
  experiment.go_on_inside(read_partial(comm, open, from.checkpoint));
}

void check_checkpoint(const std::string& path, std::int64_t round, Experiment& experiment,
                      const Tick& tick) {
  try {
    if (read_resumption(path, tick).round != round) throw Error("it is of another round");
    const h5::Handle file = h5::open_file(path, h5::Mode::Read);
    StateCheck check(file, path, experiment.parts().placement());
    experiment.visit_state(check);
  } catch (const Error& error) {
    throw Error(concat("it does not read back: ", error.what()));
  }
}

StateBytes state_bytes(Experiment& experiment, Communicator& comm) {
  StateSize size;
  experiment.visit_state(size);
  Tensor own = at::full({2}, size.own_bytes(), at::kLong);
  own[1] = size.full_own_bytes();
  comm.sum_(own);
  return {.now = size.common_bytes() + own[0].item<std::int64_t>(),
          .full = size.common_bytes() + own[1].item<std::int64_t>()};
}

Checkpointer::Checkpointer(Experiment& experiment, Communicator& comm, const Resumption* from)
    : experiment_(experiment), comm_(comm), results_(link_target(experiment.config().run.output)) {
  if (from == nullptr) return;
  for (const CheckpointFile& file : checkpoints_of(results_)) {
    std::error_code failed;
    if (std::filesystem::equivalent(file.path, from->checkpoint, failed)) kept_ = {file.path};
  }
}

bool Checkpointer::due(std::int64_t round) const {
  const std::optional<std::int64_t>& every = experiment_.config().run.checkpoint_every;
  if (every == 0) return false;
  if (round == experiment_.config().run.rounds) return true;
  if (every) return round % *every == 0;
  // The clock of one rank decides for all.
  return comm_.rank() == 0 &&
         Clock::now() - written_ >= std::max<Clock::duration>(kInterval, kShareOfTime * took_);
}

void Checkpointer::write(std::int64_t round, const h5::Handle* results) {
  const auto begin = Clock::now();
  const AtTask writing(comm_.place(), Place::Task::Checkpoint);
  const std::string path = checkpoint_path(results_, round);
  const ModelRecord model = experiment_.current_model();
  const StateBytes state = state_bytes(experiment_, comm_);
  if (round == experiment_.config().run.rounds && !agree_on_room(path, results, state.now, model)) {
    return;
  }
  if (results != nullptr) {
    const std::string lacking = lacking_room(path, *results, state.now, model);
    if (!lacking.empty()) throw Error(concat(lacking, "; make room, then ", way_on(results_)));
  }
  naming_file(path, results_, [&] { write_file(path, round, results, model); });
  std::erase(kept_, path);
  kept_.push_back(path);
  if (kept_.size() > kKept) kept_.erase(kept_.begin());
  written_ = Clock::now();
  took_ = written_ - begin;
  run_log().debug("checkpoint '", path, "' is written in ",
                  std::chrono::duration<double>(took_).count(), " s");
  if (comm_.rank() == 0) remove_checkpoints(results_, kept_);
}

bool Checkpointer::agree_on_room(const std::string& path, const h5::Handle* results,
                                 std::int64_t state_bytes, const ModelRecord& model) const {
  const std::string lacking =
      results == nullptr ? "" : lacking_room(path, *results, state_bytes, model);
  Tensor lacks = at::full({1}, lacking.empty() ? 0.0 : 1.0, at::kDouble);
  comm_.sum_(lacks);
  if (lacks.item<double>() == 0) return true;
  if (results != nullptr) {
    run_log().of_run(LogLevel::Warning,
                     concat(lacking, "; without it this run cannot go on to more rounds"));
  }
  return false;
}

void Checkpointer::keep_newest() const {
  if (comm_.rank() == 0 && !kept_.empty()) remove_checkpoints(results_, {kept_.back()});
}

std::string Checkpointer::lacking_room(const std::string& path, const h5::Handle& results,
                                       std::int64_t state_bytes, const ModelRecord& model) const {
  const std::int64_t needed = h5::bytes_of(results) + state_bytes + model.bytes() + kSlack;
  const std::int64_t left = free_bytes(folder_of(path));
  if (needed <= left) return {};
  return concat("no room for checkpoint '", path, "': it needs up to ",
                readable_bytes(static_cast<double>(needed)), ", ",
                readable_bytes(static_cast<double>(left)), " are free");
}

void Checkpointer::write_file(const std::string& path, std::int64_t round,
                              const h5::Handle* results, const ModelRecord& model) {
  if (results == nullptr) {
    StateWriter other(comm_, experiment_.parts().placement(), nullptr);
    experiment_.visit_state(other);
    write_partial(comm_, nullptr, experiment_.partial());
    return;
  }
  Unfinished unfinished(path + ".tmp");
  h5::Handle file = h5::open_file(unfinished.path(), h5::Mode::Create, kSealBytes);
  h5::copy_contents(*results, file, {"/model/global", "/model/factors"});
  h5::replace_attribute(file, "status", "interrupted");
  h5::replace_attribute(file, "finished", utc_now());
  for (const auto& [group, parameters] : model.parts()) {
    write_parameters(file, "/model/" + group, parameters);
  }
  write_origin(h5::create_group(file, "/state"), round, experiment_.diverged_since(),
               experiment_.partition());
  StateWriter state(comm_, experiment_.parts().placement(), &file);
  experiment_.visit_state(state);
  write_partial(comm_, &file, experiment_.partial());
  h5::flush_file(file);
  file.reset();
  const Tick tick = [this] { comm_.progress(); };
  seal(unfinished.path(), tick);
  // Older ones go once this one is there.
  check_checkpoint(unfinished.path(), round, experiment_, tick);
  unfinished.finish(path);
}

}  // namespace fedhpc
