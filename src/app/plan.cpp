#include "fedhpc/engine/plan.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <optional>
#include <sstream>

#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/training/local_steps.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"
#include "app/still_at_work.hpp"

namespace fedhpc {

namespace {

/// Seconds of training a round of average cohort takes, until the last rank is done.
double seconds_per_round(const Parts& parts, double seconds_per_step,
                         const PlannedMachine& machine) {
  double steps = 0;
  for (std::int64_t client = 0; client < parts.partition.clients(); ++client) {
    const std::int64_t all = parts.steps_of(client);
    steps += parts.trainer->stragglers().mean_part(client, all) * static_cast<double>(all);
  }
  const double share =
      static_cast<double>(parts.cohort_mean()) / static_cast<double>(parts.partition.clients());
  return steps * share * seconds_per_step / (machine.ranks * machine.balance);
}

/// Values of sample gradients that a participant takes in a round, mean over clients.
double gradient_values(const Parts& parts, double per_sample) {
  const Partition& partition = parts.partition;
  const Stragglers& late = parts.trainer->stragglers();
  double visited = 0;
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    const std::int64_t steps = parts.steps_of(client);
    if (steps == 0) continue;
    // Who stays away is no participant.
    visited +=
        (late.stay_away() ? 1 : late.mean_part(client, steps)) *
        static_cast<double>(sample_visits(parts.config.train, partition.train.count(client)));
  }
  return per_sample * visited / static_cast<double>(partition.clients());
}

/// What is trained of a factorised model: of all columns and of each factorised layer.
void add_factors(std::vector<std::pair<std::string, std::string>>& lines, const FactorMap& map) {
  lines.emplace_back("trainable_columns", concat(map.full()->count(Tag::Trainable)));
  lines.emplace_back("trained_columns", concat(map.factors()->count(Tag::Trainable)));
  for (std::int64_t l = 0; l < map.layers(); ++l) {
    lines.emplace_back(concat("factors.", map.layer_name(l)), concat(map.factors_of_layer(l)));
  }
}

/// A text as JSON has it.
std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char letter : text) {
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(letter));
    const bool plain = static_cast<unsigned char>(letter) >= ' ' && letter != '"' && letter != '\\';
    all += plain ? std::string(1, letter) : code;
  }
  return all + "\"";
}

std::string in_json(const Plan& plan) {
  std::vector<std::string> needs, config, series;
  for (const auto& [name, value] : plan.needs) needs.push_back(concat(quoted(name), ": ", value));
  for (const Assignment& one : plan.config) {
    config.push_back(concat(quoted(one.key), ": ", quoted(one.value)));
  }
  for (const Metric& one : plan.series) series.push_back(quoted(one.name));
  std::string digests;
  for (const auto& [name, digest] : plan.digests.named()) {
    digests += concat(", ", quoted(name), ": ", quoted(digest));
  }
  return concat("{", join(needs), ", \"config\": {", join(config), "}, \"metrics\": [",
                join(series), "]", digests, "}\n");
}

/// A series a line: its name, its unit and its meaning, with tabs between.
std::string in_lines(const std::vector<Metric>& series) {
  std::string text;
  for (const Metric& one : series)
    text += concat(one.name, "\t", one.unit, "\t", one.meaning, "\n");
  return text;
}

/// Takes a word off the arguments; whether it was there.
bool taken(Arguments& arguments, const std::string& word) {
  return std::erase(arguments, word) > 0;
}

/// Takes --ranks N off the arguments; none where it is not there.
std::optional<int> ranks_asked_for(Arguments& arguments) {
  const auto word = std::ranges::find(arguments, "--ranks");
  if (word == arguments.end()) return std::nullopt;
  const std::string number = word + 1 == arguments.end() ? "" : *(word + 1);
  int ranks = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ranks);
  if (error != std::errc() || end != number.data() + number.size() || ranks < 1) {
    throw ConfigError(
        concat("--ranks = '", number, "': give a whole number of at least 1, as in --ranks 64"));
  }
  arguments.erase(word, word + 2);
  return ranks;
}

/// Warns where a run started here would refuse its output: this machine may not be the one it is for.
void tell_of_output(const Config& config) {
  try {
    run_log().of_run(LogLevel::Warning, check_output(config, "", {}));
  } catch (const ConfigError& refused) {
    run_log().of_run(LogLevel::Warning, concat("a run here would be refused: ", refused.what()));
  }
}

}  // namespace

Plan plan(const std::function<Given()>& read, const StartOptions& start, std::optional<int> ranks) {
  const OneThread one_thread;
  std::unique_ptr<Communicator> comm = world_communicator(start.timeout);
  std::unique_ptr<Config> config;
  fail_together(*comm, [&] { config = configuration_of(read()); });
  run_log().show(config->run.log_level);
  tell_notes(*config);
  if (comm->rank() == 0) tell_of_output(*config);
  comm = run_communicator(*config);
  std::optional<StillAtWork> notice;
  if (comm->rank() == 0) notice.emplace("preparing the data and the model");
  Parts parts(*config, *comm, nullptr);
  const PlannedRun planned = plan_run(parts);
  const PlannedMachine machine = plan_machine(parts, planned, ranks.value_or(comm->size()));
  notice.reset();

  const std::int64_t clients = parts.partition.clients();
  std::vector<std::pair<std::string, std::string>> lines = {
      {"ranks", concat(machine.ranks)},
      {"clients_per_rank", concat(machine.clients)},
      {"bytes_up_per_client", concat(planned.up_per_client)},
      {"bytes_down_per_client", concat(planned.down_per_client)},
      {"memory_per_rank_bytes", concat(machine.memory_bytes)},
      {"block", concat(parts.block_width)},
      {"seconds_per_round",
       concat(seconds_per_round(parts, planned.seconds_per_step, machine) +
              planned.seconds_of_server * comm->size() / machine.ranks +
              planned.seconds_of_evaluation * comm->size() /
                  static_cast<double>(machine.ranks * config->run.eval_every))},
      {"gradient_values_per_client",
       concat(std::llround(gradient_values(parts, planned.gradient_values_per_sample)))},
      {"clients", concat(clients)},
      {"rounds", concat(config->run.rounds)},
      {"balance", concat(machine.balance)},
      {"balance_at_home", concat(machine.balance_at_home)},
      {"moved_per_round", concat(machine.moved)},
  };
  if (parts.accountant) {
    const double epsilon = parts.accountant->epsilon(config->run.rounds);
    lines.emplace_back(Privacy::kEpsilon, std::isfinite(epsilon) ? concat(epsilon) : "null");
  }
  if (parts.has_edge_models()) {
    lines.emplace_back("bytes_up_per_edge", concat(planned.up_per_edge));
    lines.emplace_back("bytes_down_per_edge", concat(planned.down_per_edge));
  }
  if (parts.factor_map) add_factors(lines, *parts.factor_map);
  return {lines, parse_ini(config->to_ini(), "the configuration"), parts.series_to_come(),
          parts.digests};
}

int plan_command(const Arguments& arguments) {
  Arguments rest = arguments;
  const bool json = taken(rest, "--json");
  const bool series = taken(rest, "--series");
  if (json && series) throw ConfigError("--json has the series as well: leave out --series");
  const std::optional<int> ranks = ranks_asked_for(rest);
  const Plan planned =
      plan([&] { return given_by(rest, "plan"); }, start_options("plan", rest), ranks);
  if (run_log().rank() != 0) return 0;
  std::string text;
  for (const auto& [key, value] : planned.needs) text += concat(key, ": ", value, "\n");
  std::fputs((json ? in_json(planned) : series ? in_lines(planned.series) : text).c_str(), stdout);
  return 0;
}

}  // namespace fedhpc
