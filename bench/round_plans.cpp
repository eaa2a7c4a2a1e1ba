// The share of a machine in use: mean over maximum of the ranks' work, mean over drawn rounds, with
// participants trained at home and where the round's plan has them; at best: what the mean of the
// ranks and the largest participants leave. Clients of equal sizes and of log-normal ones (sigma 1).

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/round_plan.hpp"

namespace fedhpc {
namespace {

struct Setting {
  std::int64_t clients;
  double participation;
  int ranks;
};

enum class Sizes { Equal, LogNormal };

/// Work of the clients; of another draw for every round.
std::vector<double> work_of(std::int64_t clients, Sizes sizes, std::int64_t round) {
  std::vector<double> work(static_cast<std::size_t>(clients), 1);
  if (sizes == Sizes::Equal) return work;
  Draws draws(
      {.seed = 1, .purpose = Purpose::Generator, .round = static_cast<std::uint64_t>(round)});
  for (double& one : work) one = std::exp(draws.normal());
  return work;
}

/// No plan has a larger mean over maximum: some rank trains the largest participant, and some rank
/// k + 1 of the k ranks + 1 largest.
double bound_of(const std::vector<std::int64_t>& cohort, const std::vector<double>& work,
                int ranks) {
  std::vector<double> drawn;
  for (const std::int64_t client : cohort) drawn.push_back(work[static_cast<std::size_t>(client)]);
  std::sort(drawn.begin(), drawn.end(), std::greater<>());
  const double mean = std::accumulate(drawn.begin(), drawn.end(), 0.0) / ranks;
  double most = mean;
  const auto step = static_cast<std::size_t>(ranks);
  for (std::size_t last = 0; last < drawn.size(); last += step) {
    double least = 0;
    for (std::size_t i = 0; i <= last / step; ++i) least += drawn[last - i];
    most = std::max(most, least);
  }
  return mean / most;
}

void measure(const Setting& setting, Sizes sizes, std::int64_t rounds) {
  const Placement placement(edges_of_clients(setting.clients, 0, {}), 0, setting.ranks);
  double home = 0;
  double planned = 0;
  double at_best = 0;
  double moved = 0;
  double seconds = 0;
  std::size_t participants = 0;
  for (std::int64_t t = 1; t <= rounds; ++t) {
    const std::vector<double> work = work_of(setting.clients, sizes, t);
    const RoundCosts costs{
        .work = [&](std::int64_t client) { return work[static_cast<std::size_t>(client)]; },
        .of_moving = [](const Move&) { return 0.0; }};
    const auto cohort = draw_cohort(1, t, setting.clients, setting.participation).clients;
    participants = cohort.size();
    const auto begin = std::chrono::steady_clock::now();
    const auto moves = plan_round(cohort, placement, MovingRange::Everywhere, costs);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    home += balance_of(work_of_ranks(cohort, placement, {}, costs));
    planned += balance_of(work_of_ranks(cohort, placement, moves, costs));
    at_best += bound_of(cohort, work, setting.ranks);
    moved += static_cast<double>(moves.size());
  }
  const auto n = static_cast<double>(rounds);
  std::printf("| %lld, %zu, %d | %s | %.2f | %.2f | %.2f | %.0f %% | %.0f us |\n",
              static_cast<long long>(setting.clients), participants, setting.ranks,
              sizes == Sizes::Equal ? "equal" : "log-normal", home / n, planned / n, at_best / n,
              100 * moved / n / static_cast<double>(participants), 1e6 * seconds / n);
}

}  // namespace
}  // namespace fedhpc

/// round_plans [ROUNDS]
int main(int argc, char** argv) {
  using namespace fedhpc;
  const std::int64_t rounds = argc > 1 ? std::atoll(argv[1]) : 2000;
  std::puts(
      "| clients, participants, ranks | sizes | at home | planned | at best | moved | a plan takes "
      "|");
  std::puts("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
  for (const Setting& setting : {Setting{100, 0.1, 4}, Setting{100, 0.2, 8}, Setting{1000, 0.1, 16},
                                 Setting{10000, 0.1, 64}}) {
    measure(setting, Sizes::Equal, rounds);
    measure(setting, Sizes::LogNormal, rounds);
  }
}
