#include "fedhpc/engine/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <ATen/ops/full.h>

#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/process_memory.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/engine/recorder.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/seal.hpp"

#include "engine/checkpoint_origin.hpp"
#include "engine/partial_file.hpp"
#include "engine/state_file.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kSlack = 256 * 1024;               // bytes: what HDF5 itself takes
constexpr const char* kDivergedSince = "diverged_since";  // attribute of /state
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

/// Writes which round a state is of, whose samples clients have and what they began with.
void write_origin(const h5::Handle& state, std::int64_t round, const Experiment& experiment) {
  h5::write_attribute(state, "round", round);
  h5::write_attribute(state, kDivergedSince, experiment.diverged_since());
  h5::write_attribute(state, kPartitionDigest, digest_of(experiment.partition()));
  if (experiment.parts().accountant) {
    h5::write_attribute(state, kUploads, experiment.parts().method().traits().averaged_uploads);
  }
  const std::string& weights = experiment.parts().weights_digest;
  if (!weights.empty()) h5::write_attribute(state, kWeightsDigest, weights);
}

StateSize size_of_state(Experiment& experiment) {
  StateSize size(experiment.parts().placement());
  experiment.visit_state(size);
  return size;
}

/// Of all ranks. Collective.
StateBytes bytes_of(const StateSize& size, Communicator& comm) {
  Tensor own = at::full({2}, size.own_bytes(), at::kLong);
  own[1] = size.full_own_bytes();
  comm.sum_(own);
  return {.now = size.common_bytes() + own[0].item<std::int64_t>(),
          .full = size.common_bytes() + own[1].item<std::int64_t>()};
}

/// Throws Error where a method comes back with another model than its checkpoint has. Another type of
/// processor may round differently; a model that has diverged says nothing.
void check_model(const Resumption& from, Communicator& comm, const Experiment& experiment) {
  constexpr double kRounding = 1e-3;  // of the model's length
  const Rows now = experiment.current_model().global;
  fail_together(comm, [&] {
    if (comm.rank() != 0 || !now.values.defined()) return;
    const Tensor saved =
        read_initial_model("checkpoint", from.checkpoint, now.layout, at::kDouble, InitState::Final)
            .values;
    const auto length = saved.norm().item<double>();
    const auto off = on_host(now.values).to(at::kDouble).sub(saved).norm().item<double>();
    if (!std::isfinite(length) || off <= kRounding * length) return;
    throw Error(concat("algorithm.name = ", experiment.config().algorithm_name,
                       " comes back from checkpoint '", from.checkpoint,
                       "' with another global model than it had; its visit_state() leaves out what "
                       "it needs"));
  });
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
      throw NewerVersion(concat("checkpoint '", path, "' was written by fedhpc ", version,
                                ", this is ", build_info().version,
                                "; use that version or a newer one"));
    }
    const h5::Handle state = h5::open_group(file, "/state");
    const bool tells = h5::has_attribute(state, kDivergedSince);  // older versions did not
    const std::int64_t diverged_since =
        tells ? h5::read_integer_attribute(state, kDivergedSince) : 0;
    const auto round = h5::read_integer_attribute(state, "round");
    const auto scored = h5::read_vector<std::int64_t>(file, "/clients/evaluated_rounds");
    return {.checkpoint = path,
            .config = read_config(file),
            .started = identity_of(file),
            .round = round,
            .block = h5::read_integer_attribute(file, "block"),
            .diverged_since = diverged_since,
            .holds_initial_model = h5::exists(file, "/model/init/global"),
            .of_own_code = h5::has_attribute(file, Digests::kCode),
            .evaluated = !scored.empty() && scored.back() == round,
            .inside_round = holds_partial(file)};
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
      check_origin(file, from, experiment);
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
  check_model(from, comm, experiment);
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
  return bytes_of(size_of_state(experiment), comm);
}

Checkpointer::Checkpointer(Experiment& experiment, Communicator& comm, const Resumption* from)
    : experiment_(experiment),
      comm_(comm),
      results_(link_target(experiment.config().run.output)),
      states_(size_of_state(experiment).names()) {
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
  const StateSize visited = size_of_state(experiment_);
  refuse_late_states(visited.names());
  const std::optional<PackedRound> partial = pack_partial(experiment_.partial());
  const std::int64_t state = bytes_of(visited, comm_).now + bytes_of(partial, comm_);
  const std::string lacking = results == nullptr ? "" : lacking_room(path, *results, state, model);
  if (round == experiment_.config().run.rounds && is_left_out(lacking)) return;
  if (!lacking.empty()) throw Error(concat(lacking, "; make room, then ", way_on(results_)));
  // What it takes need not come on top of what was freed before, nor stay for what comes after.
  give_back_freed_memory();
  naming_file(path, results_, [&] { write_file(path, round, results, model, partial); });
  give_back_freed_memory();
  std::erase(kept_, path);
  kept_.push_back(path);
  if (kept_.size() > kKept) kept_.erase(kept_.begin());
  written_ = Clock::now();
  took_ = written_ - begin;
  run_log().debug("checkpoint '", path, "' is written in ",
                  std::chrono::duration<double>(took_).count(), " s");
  if (comm_.rank() == 0) remove_checkpoints(results_, kept_);
}

void Checkpointer::refuse_late_states(const std::set<std::string>& names) const {
  std::string late;
  for (const std::string& name : names) {
    if (!states_.contains(name)) late = name;
  }
  // Rows that a block opens are on some ranks alone.
  for (const std::string& name : comm_.all_texts(late)) {
    if (!name.empty()) refuse_late_state(name);
  }
}

bool Checkpointer::is_left_out(const std::string& lacking) const {
  Tensor lacks = at::full({1}, lacking.empty() ? 0.0 : 1.0, at::kDouble);
  comm_.sum_(lacks);
  if (!lacking.empty()) {
    run_log().of_run(LogLevel::Warning,
                     concat(lacking, "; without it this run cannot go on to more rounds"));
  }
  return lacks.item<double>() > 0;
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
                              const h5::Handle* results, const ModelRecord& model,
                              const std::optional<PackedRound>& partial) {
  if (results == nullptr) {
    StateWriter other(comm_, experiment_.parts().placement(), nullptr);
    experiment_.visit_state(other);
    write_partial(comm_, nullptr, partial);
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
  write_origin(h5::create_group(file, "/state"), round, experiment_);
  StateWriter state(comm_, experiment_.parts().placement(), &file);
  experiment_.visit_state(state);
  write_partial(comm_, &file, partial);
  h5::close_file(std::move(file));
  const Tick tick = [this] { comm_.progress(); };
  seal(unfinished.path(), tick);
  // Older ones go once this one is there.
  check_checkpoint(unfinished.path(), round, experiment_, tick);
  unfinished.finish(path);
}

}  // namespace fedhpc
