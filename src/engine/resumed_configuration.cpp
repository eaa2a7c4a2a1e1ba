#include <algorithm>
#include <array>

#include "fedhpc/engine/resume.hpp"

namespace fedhpc {

namespace {

// How a run goes on and where things lie. All other keys say what its rounds mean.
constexpr auto kChangeable = std::to_array<std::string_view>({"run.rounds",
                                                              "run.output",
                                                              "run.plugin",
                                                              "run.progress",
                                                              "run.log_level",
                                                              "run.eval_every",
                                                              "run.live",
                                                              "run.device",
                                                              "run.collective_timeout",
                                                              "run.mpi",
                                                              "run.checkpoint_every",
                                                              "run.grace_seconds",
                                                              "run.stop_on_divergence",
                                                              "data.dir",
                                                              "data.file",
                                                              "data.test_file",
                                                              "data.partition_file",
                                                              "model.file",
                                                              "model.init_file",
                                                              "train.block",
                                                              "store.device_budget"});

bool changeable(const std::string& key) {
  return std::find(kChangeable.begin(), kChangeable.end(), key) != kChangeable.end();
}

/// Gives a run its result file where it lies now, unless the command line names one: files may have
/// moved since.
void put_results(const ResumePoint& point, std::vector<Assignment>& assignments) {
  std::erase_if(assignments, [](const Assignment& one) {
    return one.key == "run.output" && one.origin.level != Level::CommandLine;
  });
  assignments.push_back({"run.output", point.results, {Level::File, point.from.checkpoint}});
}

bool names_plugins(const Assignment& one) { return one.key == "run.plugin"; }

/// What the run was started with. Plug-ins are those of `changes` where it names any: files may have
/// moved since.
std::vector<Assignment> stored_assignments(const ResumePoint& point,
                                           const std::vector<Assignment>& changes) {
  std::vector<Assignment> assignments = parse_ini(point.from.config, point.from.checkpoint);
  for (Assignment& one : assignments) one.origin.level = Level::Stored;
  if (std::any_of(changes.begin(), changes.end(), names_plugins)) {
    std::erase_if(assignments, names_plugins);
    std::copy_if(changes.begin(), changes.end(), std::back_inserter(assignments), names_plugins);
  }
  put_results(point, assignments);
  return assignments;
}

/// `name`: the path of the file from which `changes` come, if they are of one.
std::unique_ptr<Config> stored_configuration(const ResumePoint& point,
                                             const std::vector<Assignment>& changes,
                                             const std::string& name) {
  try {
    return std::make_unique<Config>(stored_assignments(point, changes), name);
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    if (!point.from.of_own_code || said.find("'algorithm.name'") == std::string::npos) throw;
    throw ConfigError(concat(said, "; the method was not fedhpc's own: give its file, ",
                             "--run.plugin=FILE, or define its class before"));
  }
}

std::string changeable_keys(const Config& config) {
  std::vector<std::string> allowed;
  for (const std::string_view one : kChangeable) {
    if (config.options().contains(one)) allowed.emplace_back(one);
  }
  return concat("keys that may change: ", join(allowed));
}

/// Of a run that would end where it stands.
void check_scores(const Config& config, const ResumePoint& point) {
  const bool models = !point.from.inside_round || !config.run.saves("personal");
  if (point.from.evaluated && models) return;
  throw ConfigError(concat(
      "run.rounds = ", config.run.rounds, " would end the run after a round ",
      point.from.evaluated ? "whose personal models are not kept" : "that was not evaluated",
      " (checkpoint '", point.from.checkpoint, "'); allowed: at least ", point.from.round + 1));
}

void check_rounds(const Config& config, const ResumePoint& point) {
  if (config.run.rounds == point.from.round) check_scores(config, point);
  if (config.run.rounds >= point.from.round) return;
  throw ConfigError(concat("run.rounds = ", config.run.rounds, " is less than the ",
                           point.from.round, " rounds done in checkpoint '", point.from.checkpoint,
                           "'; allowed: at least ", point.from.round));
}

}  // namespace

std::span<const std::string_view> keys_to_change_on_resume() { return kChangeable; }

bool changes_meaning(const OptionSet::Entry& entry, const Config& before) {
  if (!before.options().contains(entry.key)) return false;
  const std::string now = entry.print(), then = before.options().entry(entry.key).print();
  // The file of first weights may lie elsewhere. A run that had none drew them.
  if (entry.key == "model.init_file") return now.empty() != then.empty();
  // A cosine whose length nobody gives keeps that it had.
  if (entry.key == "train.lr_period" && entry.origin.level == Level::Default) return false;
  return !changeable(entry.key) && now != then;
}

std::unique_ptr<Config> resumed_configuration(const ResumePoint& point,
                                              const std::vector<Assignment>& changes) {
  const std::unique_ptr<Config> before =
      stored_configuration(point, changes, point.from.checkpoint);
  const auto refuse = [&](const std::string& key, const std::string& value) -> ConfigError {
    return ConfigError(concat("command line: key '", key, "' cannot be '", value,
                              "': the run was started with '", before->options().entry(key).print(),
                              "', and its past rounds would lose their meaning; ",
                              changeable_keys(*before)));
  };
  std::vector<Assignment> assignments = stored_assignments(point, changes);
  for (const Assignment& change : changes) {
    if (names_plugins(change)) continue;  // they are among the stored ones
    // Another method has other keys: compared before they are looked for.
    if (change.key == "algorithm.name" && change.value != before->algorithm_name) {
      throw refuse(change.key, change.value);
    }
    assignments.push_back(change);
  }
  auto config = std::make_unique<Config>(assignments, point.from.checkpoint);
  for (const OptionSet::Entry& entry : config->options().entries()) {
    if (changes_meaning(entry, *before)) throw refuse(entry.key, entry.print());
  }
  check_rounds(*config, point);
  return config;
}

std::unique_ptr<Config> resumed_configuration(const ResumePoint& point, const std::string& name,
                                              std::vector<Assignment> assignments) {
  put_results(point, assignments);
  auto config = std::make_unique<Config>(assignments, name);
  const std::unique_ptr<Config> before = stored_configuration(point, assignments, name);
  // A cosine's own length has been fixed by the rounds the run began with.
  const std::string period = "train.lr_period";
  if (lookup(assignments, period, "auto") == "auto" &&
      config->train.lr_schedule == LrSchedule::Cosine &&
      before->train.lr_schedule == LrSchedule::Cosine) {
    std::erase_if(assignments, [&](const Assignment& one) { return one.key == period; });
    assignments.push_back({period, before->options().entry(period).print(), {Level::Stored, name}});
    config = std::make_unique<Config>(assignments, name);
  }
  std::vector<std::string> others;
  for (const OptionSet::Entry& entry : config->options().entries()) {
    if (!changes_meaning(entry, *before)) continue;
    others.push_back(concat(entry.key, " = ", entry.print(), " (was ",
                            before->options().entry(entry.key).print(), ")"));
  }
  if (!others.empty()) {
    throw ConfigError(concat("configuration '", name, "' is not that of checkpoint '",
                             point.from.checkpoint, "': ", join(others),
                             "; past rounds would lose their meaning: put it back, or begin a new ",
                             "run with another run.output; ", changeable_keys(*before)));
  }
  check_rounds(*config, point);
  return config;
}

}  // namespace fedhpc
