// Where clients live, what their ranks share, and whether they move.

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/log.hpp"
#include "fedhpc/core/processor.hpp"
#include "fedhpc/engine/parts.hpp"
#include "fedhpc/engine/plugins.hpp"
#include "fedhpc/training/local_steps.hpp"

#include "comm/first_to_differ.hpp"

namespace fedhpc {

Placement Parts::placed_on(int ranks) const {
  const std::int64_t edges = config.topology.edges;
  return {edges_of_clients(partition.clients(), edges, partition.edge_of_client), edges, ranks,
          loads()};
}

std::vector<ClientLoad> Parts::loads() const {
  // What has a gradient costs three times as much as what is only scored. Of no key that may change
  // when a run is resumed: sums depend on homes.
  constexpr double kOfTest = 1.0 / 3.0;
  std::vector<ClientLoad> loads;
  loads.reserve(static_cast<std::size_t>(partition.clients()));
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    const std::int64_t samples = partition.train.count(client);
    const std::int64_t tests = partition.test.count(client);
    loads.push_back({.work = config.topology.participation *
                                 static_cast<double>(sample_visits(config.train, samples)) +
                             kOfTest * static_cast<double>(tests),
                     .samples = samples + tests});
  }
  return loads;
}

MovingRange Parts::moving_range(const Placement& placed) const {
  // Where ranks host several edges, a method without edges' models needs no rank of a client's.
  const bool within = placed.edges() > 0 && (has_edge_models() || placed.edges() <= placed.ranks());
  return within ? MovingRange::WithinEdges : MovingRange::Everywhere;
}

bool Parts::moves_clients(const Placement& placed) const {
  if (config.topology.placement == Training::Home || !context.device.is_cpu() ||
      !method().traits().can_leave_rounds) {
    return false;
  }
  return placed.ranks() > 1 &&
         (moving_range(placed) == MovingRange::Everywhere || placed.edges() < placed.ranks());
}

MovingRules Parts::moving_rules(const Placement& placed) const {
  constexpr double kGradient = 3;                                            // forward passes
  const double of_dense = 2 * static_cast<double>(model->layout()->size());  // at least
  return {.range = moving_range(placed),
          .count_costs = config.topology.placement == Training::Auto,
          .flops_of_sample = kGradient * std::max(model->forward_flops(), of_dense)};
}

std::unique_ptr<Shard> Parts::own_shard(std::int64_t held_bytes) const {
  return std::make_unique<Shard>(*dataset, partition, placement().clients_of_rank(comm.rank()),
                                 preparation, config.run.dtype, held_bytes, Shard::Load::Later);
}

void Parts::share_samples() {
  if (!moves_clients(placement())) return;
  // All ranks hold their samples or none does: then every rank can make those of a guest.
  Tensor on_demand = at::zeros({1}, at::kLong);
  on_demand.fill_(shard->on_demand() ? 1 : 0);
  comm.max_(on_demand);
  if (on_demand.item<std::int64_t>() == 0) {
    shared = comm.share(shard->packed_bytes(shard->clients()));
  } else if (!shard->on_demand()) {
    shard = own_shard(/*held_bytes=*/-1);
  }
}

void Parts::load_samples() {
  shard->load_(*dataset, shared ? shared->own() : nullptr);
  if (partition.validation.size() > 0) {
    validation = tested_on_validation(partition);
    validation_shard =
        std::make_unique<Shard>(*dataset, validation, placement().clients_of_rank(comm.rank()),
                                preparation, config.run.dtype);
  }
  if (config.data.split == DataSplit::Official) {
    // Whole chunks: a sample is scored beside the same others on any number of ranks.
    constexpr std::int64_t kChunk = Evaluator::kChunk;
    const std::int64_t tests = dataset->num_test();
    const Range chunks = part_of((tests + kChunk - 1) / kChunk, comm.rank(), comm.size());
    server_shard = std::make_unique<Shard>(
        Shard::server(*dataset, std::min(chunks.first * kChunk, tests),
                      std::min(chunks.last * kChunk, tests), preparation, config.run.dtype));
  }
}

void Parts::start_moves() {
  if (!moves_clients(placement())) return;
  moves = std::make_unique<ClientMoves>(ClientMoves::Parts{.world = comm,
                                                           .placement = placement(),
                                                           .partition = partition,
                                                           .training = config.train,
                                                           .stragglers = trainer->stragglers(),
                                                           .shard = *shard,
                                                           .store = *store,
                                                           .shared = shared.get()},
                                        moving_rules(placement()));
}

void Parts::tell_unused_numbers() const {
  const auto tell = [](const char* key, std::size_t numbers, std::int64_t ends, const char* of) {
    const std::int64_t more = static_cast<std::int64_t>(numbers) - ends;
    if (more <= 0 || ends == 0) return;
    run_log().of_run(LogLevel::Warning, concat(key, " has ", numbers, " numbers for ", ends, " ",
                                               of, ": nobody has the last ", more));
  };
  tell("train.stragglers", config.train.stragglers.size(), partition.clients(), "clients");
  const NetworkOptions& of = config.network;
  tell("network.step_seconds", of.step_seconds.size(), partition.clients(), "clients");
  tell("network.client_cloud_mbps", of.client_cloud_mbps.size(), partition.clients(), "clients");
  tell("network.client_edge_mbps", of.client_edge_mbps.size(), partition.clients(), "clients");
  tell("network.edge_cloud_mbps", of.edge_cloud_mbps.size(), config.topology.edges, "edges");
  const std::int64_t all = partition.clients();
  std::int64_t empty = 0;
  for (std::int64_t c = 0; c < all; ++c) empty += partition.train.count(c) == 0 ? 1 : 0;
  if (empty > 0) {
    run_log().of_run(LogLevel::Warning, concat(empty, " of ", all,
                                               " clients have no training samples: they are drawn ",
                                               "and receive models, and never train"));
  }
  if (dataset->classes() > 1 && !dataset->on_demand()) {
    const std::vector<std::int64_t> labels = dataset->labels();
    if (std::ranges::find(labels, 0) == labels.end()) {
      run_log().of_run(LogLevel::Warning, "no sample has label 0: labels count from 0");
    }
  }
  const std::string unreached = config.train.unreached_rate(config.run.rounds);
  if (!unreached.empty()) run_log().of_run(LogLevel::Warning, unreached);
}

void Parts::require_same_data() const {
  const auto other = first_to_differ(comm, digests.data + digest_of(partition));
  if (other == 0) return;
  throw DataError(concat(
      "rank 0 and rank ", other, " have read different data; look at the files of data.name = ",
      config.data.name, " and data.partition = ", config.data.partition, " on both hosts"));
}

void Parts::require_same_model() const {
  const auto other = first_to_differ(comm, digests.model);
  if (other == 0) return;
  throw DataError(concat("rank 0 and rank ", other,
                         " have read different models; look at model.file = ", config.model.file,
                         " on both hosts"));
}

void Parts::identify_code() {
  constexpr std::size_t kOfCode = 16;  // behind it constants, which ranks may have of their own
  std::string of_all;
  fail_together(comm, [&] {
    const std::string libraries = digest_of_libraries(config.run.plugins);
    const std::string method_code = method().code_digest();
    digests.code = libraries + method_code;
    of_all = libraries + method_code.substr(0, kOfCode);
  });
  const auto other = first_to_differ(comm, of_all);
  if (other == 0) return;
  throw DataError(concat(
      "rank 0 and rank ", other, " have different code of algorithm.name = ", config.algorithm_name,
      "; look at its files, and at run.plugin = ", join(config.run.plugins), ", on both hosts"));
}

void Parts::identify_processors() {
  const std::vector<std::string> types = comm.all_texts(processor_type());
  for (const std::string& type : types) processors = with_added(processors, type);
  if (processors == types.front()) return;
  run_log().of_run(LogLevel::Warning,
                   concat("ranks run on different types of processor (", processors,
                          "): by rounding, numbers depend on who trains where"));
}

}  // namespace fedhpc
