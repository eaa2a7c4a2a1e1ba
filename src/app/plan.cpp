#include "fedhpc/engine/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <optional>
#include <sstream>

#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"
#include "app/still_at_work.hpp"

namespace fedhpc {

namespace {

/// Seconds of training the slowest rank needs for a round of average cohort.
double seconds_per_round(const Parts& parts, double seconds_per_step, int ranks) {
  const Config& config = parts.config;
  double largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    double steps = 0;
    for (const std::int64_t client : parts.placement().clients_of_rank(rank)) {
      steps += static_cast<double>(parts.steps_of(client));
    }
    largest = std::max(largest, steps * config.topology.participation);
  }
  return largest * seconds_per_step;
}

/// Values of sample gradients that a participant takes in a round, mean over clients.
double gradient_values(const Parts& parts, double per_sample) {
  const TrainOptions& train = parts.config.train;
  const Partition& partition = parts.partition;
  double visited = 0;
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    const std::int64_t samples = partition.train.count(client);
    if (parts.steps_of(client) == 0) continue;
    if (train.local_epochs > 0) {
      visited += static_cast<double>(samples * train.local_epochs);
    } else {
      const std::int64_t batch =
          train.batch_size == 0 ? samples : std::min(train.batch_size, samples);
      visited += static_cast<double>(batch * train.local_steps);
    }
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

}  // namespace

std::vector<std::pair<std::string, std::string>> plan(const std::function<Given()>& read,
                                                      const StartOptions& start) {
  const OneThread one_thread;
  std::unique_ptr<Communicator> comm = world_communicator(start.timeout);
  std::unique_ptr<Config> config;
  fail_together(*comm, [&] { config = configuration_of(read()); });
  run_log().show(config->run.log_level);
  tell_notes(*config);
  comm = run_communicator(*config);
  std::optional<StillAtWork> notice;
  if (comm->rank() == 0) notice.emplace("preparing the data and the model");
  Parts parts(*config, *comm, nullptr);
  const PlannedRun planned = plan_run(parts);
  notice.reset();

  const std::int64_t clients = parts.partition.clients();
  std::vector<std::pair<std::string, std::string>> lines = {
      {"ranks", concat(comm->size())},
      {"clients_per_rank", concat((clients + comm->size() - 1) / comm->size())},
      {"bytes_up_per_client", concat(planned.up_per_client)},
      {"bytes_down_per_client", concat(planned.down_per_client)},
      {"memory_per_rank_bytes", concat(planned.memory_bytes)},
      {"block", concat(parts.block_width)},
      {"seconds_per_round",
       concat(seconds_per_round(parts, planned.seconds_per_step, comm->size()) +
              planned.seconds_of_evaluation / static_cast<double>(config->run.eval_every))},
      {"gradient_values_per_client",
       concat(std::llround(gradient_values(parts, planned.gradient_values_per_sample)))},
      {"clients", concat(clients)},
      {"rounds", concat(config->run.rounds)},
  };
  if (parts.has_edge_models()) {
    lines.emplace_back("bytes_up_per_edge", concat(planned.up_per_edge));
    lines.emplace_back("bytes_down_per_edge", concat(planned.down_per_edge));
  }
  if (parts.factor_map) add_factors(lines, *parts.factor_map);
  return lines;
}

int plan_command(const Arguments& arguments) {
  Arguments rest = arguments;
  const auto json_at = std::find(rest.begin(), rest.end(), "--json");
  const bool json = json_at != rest.end();
  if (json) rest.erase(json_at);
  std::string text;
  const auto lines = plan([&] { return given_by(rest, "plan"); }, start_options("plan", rest));
  if (run_log().rank() != 0) return 0;
  for (const auto& [key, value] : lines) {
    text += json ? concat(text.empty() ? "{" : ", ", "\"", key, "\": ", value)
                 : concat(key, ": ", value, "\n");
  }
  if (json && !text.empty()) text += "}\n";
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace fedhpc
