#include "fedhpc/training/stragglers.hpp"

#include <algorithm>
#include <cmath>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

namespace {

Draws draws_of(std::uint64_t seed, std::int64_t client, std::int64_t round) {
  return Draws({.seed = seed,
                .purpose = Purpose::Stragglers,
                .client = static_cast<std::uint64_t>(client),
                .round = static_cast<std::uint64_t>(round)});
}

}  // namespace

double Stragglers::part(std::int64_t client, std::int64_t round) const {
  if (!train_less() || round == 0) return 1;
  Draws draws = draws_of(seed_, client, round);
  return draws.uniform() < share(client) ? 1 - draws.uniform() : 1;
}

std::int64_t Stragglers::steps(std::int64_t all, std::int64_t client, std::int64_t round) const {
  return static_cast<std::int64_t>(std::ceil(part(client, round) * static_cast<double>(all)));
}

double Stragglers::mean_part(std::int64_t client, std::int64_t steps) const {
  if (stay_away()) return 1 - share(client);
  if (!train_less() || steps == 0) return 1;
  return 1 - share(client) * (1 - 1 / static_cast<double>(steps)) / 2;  // 1 to K steps are alike
}

bool Stragglers::is_away(std::int64_t client, std::int64_t round) const {
  return stay_away() && draws_of(seed_, client, round).uniform() < share(client);
}

std::vector<std::int64_t> Stragglers::on_time(std::span<const std::int64_t> clients,
                                              std::int64_t round) const {
  std::vector<std::int64_t> here;
  std::ranges::copy_if(clients, std::back_inserter(here),
                       [&](std::int64_t client) { return !is_away(client, round); });
  if (here.empty() && !clients.empty()) {
    here.push_back(*std::ranges::max_element(clients, {}, [&](std::int64_t client) {
      return draws_of(seed_, client, round).uniform();
    }));
  }
  return here;
}

}  // namespace fedhpc
