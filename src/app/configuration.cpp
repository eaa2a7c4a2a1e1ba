#include "app/configuration.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string_view>

#include <ATen/Parallel.h>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "comm/first_to_differ.hpp"

namespace fedhpc {

Given given_by(const Arguments& arguments, const std::string& command) {
  if (arguments.empty() || arguments.front().starts_with("--")) {
    throw ConfigError(concat("fedhpc ", command, " needs a configuration first: fedhpc ", command,
                             " CONFIG.ini [--section.key=value ...]"));
  }
  Given given{arguments.front(), read_ini(arguments.front())};
  for (Assignment& assignment : parse_command_line({arguments.begin() + 1, arguments.end()})) {
    given.assignments.push_back(std::move(assignment));
  }
  return given;
}

std::unique_ptr<Config> configuration_of(const Given& given) {
  auto config = std::make_unique<Config>(given.assignments, given.name);
  config->check_files();
  config->check_device();
  return config;
}

Arguments load_plugins(const Arguments& arguments, const std::string& command) {
  Arguments others;
  std::vector<Assignment> plugins;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) {
      others.push_back(argument);
      continue;
    }
    for (Assignment& one : parse_command_line({argument})) {
      if (one.key != "run.plugin") {
        throw ConfigError(concat("fedhpc ", command, " has no use for '", argument,
                                 "'; of the keys it takes --run.plugin=FILE,... alone"));
      }
      plugins.push_back(std::move(one));
    }
  }
  if (!plugins.empty()) const Config loads_them(plugins, command + ".ini");
  return others;
}

namespace {

constexpr std::array<std::string_view, 7> kPlacesOfFiles{
    "data.dir",   "data.file",       "data.test_file", "data.partition_file",
    "model.file", "model.init_file", "run.plugin"};

/// What ranks have to agree on: the keys that act with their values, a line each.
std::string agreed_values(const Config& config) {
  std::string lines;
  for (const OptionSet::Entry& entry : config.options().entries()) {
    if (!config.options().acts(entry) || std::ranges::count(kPlacesOfFiles, entry.key) > 0)
      continue;
    lines += concat(entry.key, " = ", entry.print(), "\n");
  }
  return lines;
}

}  // namespace

void require_one_build(const BuildInfo& own, Communicator& comm) {
  const std::string text =
      concat("fedhpc ", own.version, ", commit ", own.commit, ", LibTorch ", own.torch);
  const auto other = first_to_differ(comm, text);
  if (other == 0) return;
  const std::vector<std::string> all = comm.all_texts(text);
  throw ConfigError(concat("rank 0 is ", all.front(), " and rank ", other, " ", all[other],
                           "; start one installation on all hosts"));
}

void require_one_configuration(const Config& config, Communicator& comm) {
  const std::string mine = agreed_values(config);
  const auto other = first_to_differ(comm, concat(std::hash<std::string>()(mine)));
  if (other == 0) return;
  const std::vector<std::string> all = comm.all_texts(mine);
  std::istringstream here(all.front());
  std::istringstream there(all[other]);
  std::string line_here;
  std::string line_there;
  while (line_here == line_there && std::getline(here, line_here) &&
         std::getline(there, line_there)) {
  }
  throw ConfigError(concat("rank 0 has '", line_here, "' and rank ", other, " '", line_there,
                           "'; a run has one configuration on all its ranks"));
}

StartOptions start_options(const std::vector<Assignment>& assignments) {
  const RunOptions unless_told;
  StartOptions start{.timeout = unless_told.collective_timeout, .mpi = unless_told.mpi};
  const std::string value = lookup(assignments, "run.collective_timeout", "");
  double seconds = 0;  // not by strtod(), which asks the locale
  std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (seconds > 0) start.timeout = seconds;
  const std::string mpi = lookup(assignments, "run.mpi", "");
  if (mpi == "on") start.mpi = UseMpi::On;
  if (mpi == "off") start.mpi = UseMpi::Off;
  return start;
}

namespace {

/// The file whose configuration `fedhpc resume PATH` goes on with: a checkpoint beside a result file,
/// the newest that can be read.
std::string resumed_file(const std::string& path) {
  for (const CheckpointFile& checkpoint : checkpoints_of(link_target(path))) {
    if (!config_in(checkpoint.path).empty()) return checkpoint.path;
  }
  return path;
}

}  // namespace

StartOptions start_options(const std::string& command, const Arguments& arguments) {
  StartOptions start = start_options(std::vector<Assignment>{});
  try {
    const auto is_option = [](const std::string& one) { return one.starts_with("--"); };
    Arguments paths = arguments;
    std::erase_if(paths, is_option);
    Arguments keys = arguments;
    std::erase_if(keys, [&](const std::string& one) {
      return !is_option(one) || one.find('=') == std::string::npos;
    });
    std::vector<Assignment> assignments = parse_command_line(keys);
    if (command == "resume" && paths.size() == 1) paths = {resumed_file(paths.front())};
    // A configuration behind what is resumed says all.
    if (command == "resume" && paths.size() > 1) paths.erase(paths.begin());
    for (const std::string& path : paths) {
      std::error_code failed;
      if (!std::filesystem::is_regular_file(path, failed)) continue;  // a pipe can be read but once
      const bool stored = h5::is_hdf5(path) == true;
      for (Assignment& one : stored ? parse_ini(config_in(path), path) : read_ini(path)) {
        assignments.push_back(std::move(one));
      }
    }
    start = start_options(assignments);
  } catch (const std::exception&) {
    // What is wrong with them is said where they are read in earnest.
  }
  if (command != "run" && command != "resume" && command != "plan") start.mpi = UseMpi::Off;
  return start;
}

OneThread::OneThread() : before_(at::get_num_threads()) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(1);
}

OneThread::~OneThread() { at::set_num_threads(before_); }

}  // namespace fedhpc
