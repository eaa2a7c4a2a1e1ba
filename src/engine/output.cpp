#include "fedhpc/engine/output.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>

#include "fedhpc/engine/progress.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

namespace fs = std::filesystem;

namespace {

constexpr double kFileSlack = 256 * 1024;  // bytes: what HDF5 itself takes of a file
constexpr double kCheckpoints = 3;         // two are kept while the next one is written

/// Whether a file is locked even after so long. The process of a run just killed holds its file
/// until it is gone, and another start reads the stored time-out before it asks for the run's lock.
bool locked_after(const std::string& path, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (is_locked(path)) {
    if (std::chrono::steady_clock::now() > end) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace

LockFile claim_output(const std::string& output) {
  const std::string results = link_target(output);
  std::error_code ignored;
  // No place for a result file: check_output() says so.
  if (!fs::is_directory(folder_of(results), ignored) || fs::is_directory(results, ignored)) {
    return {};
  }
  LockFile lock(lock_path(results));
  if (lock.state() == LockFile::State::Taken) {
    throw ConfigError(concat("run.output '", output, "': another run is writing it (",
                             lock.reason(), "); wait for its end or give another name"));
  }
  if (lock.taken_over()) locked_after(results, std::chrono::seconds(5));
  return lock;
}

std::string check_output(const Config& config, const std::string& configuration,
                         const LockFile& claim) {
  const std::string output = link_target(config.run.output);
  const std::string place = config.options().origin("run.output").level == Level::Default
                                ? "configuration"
                                : config.options().origin("run.output").place;
  const auto refuse = [&](const std::string& reason) {
    throw ConfigError(concat(place, ": key 'run.output' cannot be '", output, "': ", reason));
  };
  std::error_code ignored;
  const std::string folder = folder_of(output);
  if (!fs::is_directory(folder, ignored)) {
    refuse(concat("the folder '", folder, "' does not exist; create it first"));
  }
  if (fs::is_directory(output, ignored)) refuse("it is a folder; give the path of a file");
  if (is_name_beside(output)) {
    refuse("runs give such names to files beside a result file; give another name");
  }
  const std::string twin = of_the_same_checkpoints(output);
  if (fs::is_regular_file(twin, ignored) && h5::is_hdf5(twin) == true) {
    refuse(concat("its checkpoints would be those of '", twin, "'; give another name"));
  }
  const bool present = fs::exists(output, ignored);
  if (present && !fs::is_regular_file(output, ignored)) {
    refuse("it is not a file; give the path of one");
  }
  // The file grows under another name and then takes its place, and checkpoints lie beside it.
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0 ||
      (present && access(output.c_str(), W_OK) != 0)) {
    refuse("no permission to write there");
  }
  if (present && locked_after(output, std::chrono::seconds(1))) {
    refuse("another run is writing it or another program has it open; give another name");
  }
  std::set<std::string> inputs{configuration,    config.model.file,     config.model.init_file,
                               config.data.file, config.data.test_file, config.data.partition_file};
  inputs.insert(config.run.plugins.begin(), config.run.plugins.end());
  for (const OptionSet::Entry& entry : config.options().entries()) {
    inputs.insert(entry.origin.file);  // its bases
  }
  for (const std::string& input : inputs) {
    if (!input.empty() && present && fs::equivalent(input, output, ignored)) {
      refuse("this run reads that file; give another name");
    }
  }
  // While it is written it ends in .tmp; set aside it holds .old1.
  const std::string longest = checkpoint_path(output, config.run.rounds) + ".old1";
  const long letters = pathconf(folder.c_str(), _PC_NAME_MAX);
  if (letters > 0 && fs::path(longest).filename().string().size() > std::size_t(letters)) {
    refuse(concat("its checkpoints would have names of more than ", letters,
                  " bytes; give a shorter name"));
  }
  if (claim.state() == LockFile::State::NoFile) {
    refuse(concat("its lock '", claim.path(), "' cannot be made: ", claim.reason()));
  }
  if (claim.state() != LockFile::State::NoLocks) return {};
  return concat("no lock can be put on '", output, "' (", claim.reason(),
                "); see to it that no other run writes it");
}

RoomNeeded room_needed(const Experiment& experiment, std::int64_t rounds_left, std::int64_t written,
                       const StateBytes& state) {
  const Config& config = experiment.config();
  const double rounds = static_cast<double>(rounds_left);
  const double clients = static_cast<double>(experiment.partition().clients());
  const double model = static_cast<double>(experiment.first_record().bytes());
  double round = 8.0 * static_cast<double>(experiment.series().size());
  if (config.run.saves("draws")) {
    round += 8.0 * static_cast<double>(experiment.parts().participants_limit());
    for (const auto& [name, values] : config.algorithm->drawn_in(1)) {
      round += static_cast<double>(values.nbytes());
    }
  }
  const auto page = static_cast<double>(h5::kPage);
  const double scores = sizeof(double) * clients + 8;
  const double evaluation = scores > page / 2 ? page * std::ceil(scores / page) : scores;
  const double personal =
      config.run.saves("personal")
          ? clients * static_cast<double>(experiment.initial().global.values.nbytes())
          : 0;
  const double now = static_cast<double>(written);
  const double growth = model + personal + rounds * round +
                        (rounds / static_cast<double>(config.run.eval_every) + 1) * evaluation +
                        kFileSlack;
  const bool saves_itself = config.run.checkpoint_every != 0;
  const double first_checkpoint = now + model + static_cast<double>(state.now) + kFileSlack;
  const double last_checkpoint = now + growth + model + static_cast<double>(state.full);
  return {.first = model + personal + (saves_itself ? first_checkpoint : 0),
          .all = growth + (saves_itself ? kCheckpoints : 1) * last_checkpoint};
}

std::string check_room(const Config& config, const RoomNeeded& needed, std::int64_t left) {
  const std::string& output = config.run.output;
  const auto free = static_cast<double>(left);
  if (needed.first > free) {
    throw ConfigError(concat("run.output '", output, "' has no room: up to the first checkpoint ",
                             readable_bytes(needed.first), " are needed, ", readable_bytes(free),
                             " are free; make room or give a path on another file system"));
  }
  if (needed.all <= free) return {};
  return concat("all rounds of '", output, "' and their checkpoints may take ",
                readable_bytes(needed.all), ", ", readable_bytes(free), " are free");
}

std::string way_on(const std::string& results) {
  const std::vector<CheckpointFile> checkpoints = checkpoints_of(link_target(results));
  if (checkpoints.empty()) return "give the same command again: there is no checkpoint of it yet";
  return concat("'fedhpc resume ", shell_word(results), "' goes on after round ",
                checkpoints.front().round);
}

}  // namespace fedhpc
