#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <sstream>

#include <ATen/ops/zeros.h>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/math/products.hpp"

#include "app/configuration.hpp"

namespace fedhpc {

namespace {

/// Multiplications and additions per second of this core in products of the size of a batch's.
double measured_flops(at::ScalarType type) {
  constexpr std::int64_t kRows = 32;
  constexpr std::int64_t kColumns = 256;
  constexpr int kRepetitions = 200;
  Tensor a = at::zeros({kRows, kColumns}, type);
  Tensor b = at::zeros({kColumns, kColumns}, type);
  Tensor c = at::zeros({kRows, kColumns}, type);
  const auto stack = [](Tensor& t) {
    return MatrixStack{t.data_ptr(), 0, t.size(0), t.size(1), t.size(1)};
  };
  double best = 0;
  for (int trial = 0; trial < 3; ++trial) {
    Stopwatch watch;
    watch.start();
    for (int i = 0; i < kRepetitions; ++i) {
      batched_product(type, 1, 1, stack(a), Transpose::No, stack(b), Transpose::No, 0, stack(c));
    }
    watch.stop();
    best = std::max(best, 2.0 * kRows * kColumns * kColumns * kRepetitions / watch.seconds());
  }
  return best;
}

/// Seconds of training the slowest rank needs for a round of average cohort; forward and backward
/// cost three forward passes.
double seconds_per_round(const Experiment& experiment, std::int64_t trainings, int ranks,
                         at::ScalarType type) {
  const Config& config = experiment.config();
  const Partition& partition = experiment.partition();
  double largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    double samples = 0;
    for (const std::int64_t client : experiment.placement().clients_of_rank(rank)) {
      const auto own = static_cast<double>(partition.train.count(client));
      const double batch = config.train.batch_size == 0
                               ? own
                               : std::min(own, static_cast<double>(config.train.batch_size));
      samples += config.train.local_steps > 0
                     ? static_cast<double>(config.train.local_steps) * batch
                     : static_cast<double>(config.train.local_epochs) * own;
    }
    largest = std::max(largest, samples * config.topology.participation);
  }
  return static_cast<double>(trainings) * largest * 3 * experiment.model().forward_flops() /
         measured_flops(type);
}

}  // namespace

int plan_command(const Arguments& arguments) {
  pin_threads();
  Arguments rest = arguments;
  const auto json_at = std::find(rest.begin(), rest.end(), "--json");
  const bool json = json_at != rest.end();
  if (json) rest.erase(json_at);

  std::unique_ptr<Communicator> comm = world_communicator(600);
  std::unique_ptr<Config> config;
  together(*comm, [&] { config = read_configuration(rest, "plan"); });
  Experiment experiment(*config, *comm);
  Tensor memory = at::zeros({1}, at::kLong);
  memory.fill_(experiment.memory_bytes());
  comm->max_(memory);
  const PlannedRound planned = experiment.plan_round();
  if (comm->rank() != 0) return 0;

  const at::ScalarType type = scalar_type(config->run.dtype);
  const std::int64_t clients = experiment.partition().clients();
  std::vector<std::pair<std::string, std::string>> lines = {
      {"ranks", concat(comm->size())},
      {"clients_per_rank", concat((clients + comm->size() - 1) / comm->size())},
      {"bytes_up_per_client", concat(planned.up_per_client)},
      {"bytes_down_per_client", concat(planned.down_per_client)},
      {"memory_per_rank_bytes", concat(memory.item<std::int64_t>())},
      {"block", concat(experiment.block_width())},
      {"seconds_per_round",
       concat(seconds_per_round(experiment, planned.trainings, comm->size(), type))},
  };
  if (config->algorithm->tiers() == Tiers::ClientEdgeCloud) {
    lines.emplace_back("bytes_up_per_edge", concat(planned.up_per_edge));
    lines.emplace_back("bytes_down_per_edge", concat(planned.down_per_edge));
  }
  std::string text = json ? "{" : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [key, value] = lines[i];
    text += json ? concat(i == 0 ? "" : ", ", "\"", key, "\": ", value)
                 : concat(key, ": ", value, "\n");
  }
  std::fputs((text + (json ? "}\n" : "")).c_str(), stdout);
  return 0;
}

}  // namespace fedhpc
