#include <algorithm>
#include <span>
#include <vector>

#include "fedhpc/engine/plan.hpp"

#include "engine/plan_parts.hpp"

namespace fedhpc {

PlannedMachine plan_machine(const Parts& parts, const PlannedRun& run, int ranks) {
  const Placement there = parts.placed_on(ranks);
  PlannedMachine machine{.ranks = ranks};
  const auto held = [&](std::span<const std::int64_t> clients) {
    return parts.shard->packed_bytes(clients) + bytes_of_rows(parts, run, std::ssize(clients));
  };
  std::int64_t fullest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::int64_t>& clients = there.clients_of_rank(rank);
    machine.clients = std::max(machine.clients, static_cast<std::int64_t>(clients.size()));
    fullest = std::max(fullest, held(clients));
  }
  const std::int64_t here = greatest(parts.comm, held(parts.shard->clients()));
  machine.memory_bytes = run.memory_bytes - here + fullest;

  constexpr std::int64_t kRounds = 200;
  const std::int64_t rounds = std::max<std::int64_t>(1, std::min(parts.config.run.rounds, kRounds));
  const bool moves = parts.moves_clients(there);
  const auto share = 1 / static_cast<double>(rounds);
  machine.balance = 0;
  machine.balance_at_home = 0;
  for (std::int64_t t = 1; t <= rounds; ++t) {
    const RoundCosts costs =
        costs_of_round(t, parts.moving_rules(there), parts.config.train,
                       parts.trainer->stragglers(), parts.partition, *parts.store,
                       [](const Move&) { return std::int64_t{0}; });  // one host: samples stay
    const std::vector<std::int64_t> cohort = parts.draw(t).clients;
    const std::vector<Move> planned =
        moves ? plan_round(cohort, there, parts.moving_rules(there).range, costs)
              : std::vector<Move>{};
    machine.balance += share * balance_of(work_of_ranks(cohort, there, planned, costs));
    machine.balance_at_home += share * balance_of(work_of_ranks(cohort, there, {}, costs));
    machine.moved += share * static_cast<double>(planned.size());
  }
  return machine;
}

}  // namespace fedhpc
