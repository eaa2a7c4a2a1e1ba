#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/comm/launcher.hpp"
#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/core/tensor.hpp"
#include "fedhpc/data/options.hpp"
#include "fedhpc/factorisations/options.hpp"
#include "fedhpc/io/results_writer.hpp"
#include "fedhpc/models/options.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/network.hpp"
#include "fedhpc/rounds/privacy.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/training/options.hpp"

namespace fedhpc {

enum class DeviceKind { Auto, Cpu, Cuda };
enum class ProgressKind { Auto, Bar, Plain, None };

/// The `run.*` keys.
struct RunOptions {
  std::int64_t seed = 0;
  std::int64_t rounds = 100;
  std::string output;  ///< empty: the configuration's name with .h5, in the current folder
  DeviceKind device = DeviceKind::Auto;
  bool reproducible = false;
  DType dtype = DType::Float32;
  std::int64_t eval_every = 1;
  /// Rounds; 0: only when interrupted; none: by the clock, and after the last round.
  std::optional<std::int64_t> checkpoint_every;
  ProgressKind progress = ProgressKind::Auto;
  LogLevel log_level = LogLevel::Note;
  LiveMode live = LiveMode::Auto;
  bool stop_on_divergence = false;
  double grace_seconds = 20;
  double collective_timeout = 600;
  UseMpi mpi = UseMpi::Auto;
  std::vector<std::string> save{"init"};
  std::vector<std::string> plugins;

  static void declare_plugins(OptionSet& options, std::vector<std::string>& plugins);

  void declare(OptionSet& options);
  bool saves(const std::string& what) const;
};

/// The complete, checked configuration of one run. The option table refers to the members, so a
/// Config must not move.
class Config {
 public:
  /// Loads the plug-ins of run.plugin; then defaults, then `assignments` by level. Throws
  /// ConfigError for a plug-in refused, an unknown key, a value not allowed or an impossible
  /// combination. `name`: the configuration file's path; run.output's
  /// default follows from it, and files to be read are looked for beside it or the base that names
  /// them.
  Config(const std::vector<Assignment>& assignments, const std::string& name);
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  RunOptions run;
  DataOptions data;
  ModelOptions model;
  FactorisationOptions factorisation;
  TopologyOptions topology;
  TrainOptions train;
  NetworkOptions network;
  PrivacyOptions privacy;
  StoreOptions store;
  std::string algorithm_name = "fedavg";
  std::unique_ptr<Algorithm> algorithm;

  const OptionSet& options() const { return options_; }
  /// Sentences for the user on assignments that do not act.
  const std::vector<std::string>& notes() const { return notes_; }
  /// All keys that act with their values in force, as an INI file that repeats the run.
  std::string to_ini() const { return options_.to_ini(); }
  /// Throws ConfigError for a relative path of a file to be read that is found nowhere.
  void check_files() const;
  /// Throws ConfigError for run.device = cuda where no GPU can be used.
  void check_device() const;

 private:
  /// Loads the plug-ins that the assignments name, before anything is looked for in a registry.
  void load_plugins(const std::vector<Assignment>& assignments) const;
  /// Where a relative path that is given there may lead beside the working directory: the folder of
  /// the file that gives it, a base perhaps; else that of the configuration.
  std::string folder_of(const Origin& origin) const;
  /// Replaces the relative path of every file to be read by an absolute one, where it is found: in
  /// the working directory or in that folder.
  void find_files();
  /// Declares the conditions that only the methods know: who has edges, who factorises.
  void declare_methods_of_keys();
  void resolve(const std::string& name);

  std::string folder_;  // of the configuration
  OptionSet options_;
  std::vector<std::string> notes_;
};

}  // namespace fedhpc
