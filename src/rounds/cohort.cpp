#include "fedhpc/rounds/cohort.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>

namespace fedhpc {

namespace {

constexpr std::uint64_t kClientPass = 0;
constexpr std::uint64_t kEdgePass = 1;

/// The numbers of those drawn out of n, ascending.
std::vector<std::int64_t> draw(DrawKey key, std::int64_t n, double participation) {
  std::vector<std::int64_t> drawn = permutation_prefix(key, n, cohort_size(n, participation));
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

/// The uniform by which a client takes part in a round that draws each by itself.
double uniform_of(std::uint64_t seed, std::int64_t round, std::int64_t client) {
  return Draws({.seed = seed,
                .purpose = Purpose::Cohort,
                .pass = kClientPass,
                .client = static_cast<std::uint64_t>(client),
                .round = static_cast<std::uint64_t>(round)})
      .uniform();
}

}  // namespace

std::int64_t cohort_size(std::int64_t n, double participation) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(participation * static_cast<double>(n) + 0.5)));
}

Cohort draw_cohort(std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                   double participation) {
  const DrawKey key{.seed = seed,
                    .purpose = Purpose::Cohort,
                    .pass = kClientPass,
                    .round = static_cast<std::uint64_t>(round)};
  return {.clients = draw(key, num_clients, participation), .edges = {}};
}

std::int64_t draw_each_limit(std::int64_t num_clients, double participation) {
  const auto mean = static_cast<double>(cohort_size(num_clients, participation));
  return std::min(num_clients,
                  static_cast<std::int64_t>(std::ceil(mean + 8 * std::sqrt(mean))) + 16);
}

Cohort draw_each(std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                 double participation) {
  const double rate = static_cast<double>(cohort_size(num_clients, participation)) /
                      static_cast<double>(num_clients);
  const std::int64_t limit = draw_each_limit(num_clients, participation);
  Cohort cohort;
  for (std::int64_t client = 0; client < num_clients; ++client) {
    if (uniform_of(seed, round, client) < rate) cohort.clients.push_back(client);
    if (std::ssize(cohort.clients) == limit) break;
  }
  return cohort;
}

Cohort with_stand_in(Cohort drawn, std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                     const std::function<bool(std::int64_t client)>& has_samples) {
  if (std::ranges::any_of(drawn.clients, has_samples)) return drawn;
  std::int64_t nearest = -1;
  double least = 1;
  for (std::int64_t client = 0; client < num_clients; ++client) {
    if (!has_samples(client)) continue;
    const double u = uniform_of(seed, round, client);
    if (u >= least) continue;
    least = u;
    nearest = client;
  }
  if (nearest < 0) return drawn;  // nobody has samples
  const auto place = std::ranges::lower_bound(drawn.clients, nearest);
  drawn.clients.insert(place, nearest);
  std::erase(drawn.away, nearest);
  drawn.stands_in = true;
  return drawn;
}

Cohort draw_hierarchical_cohort(std::uint64_t seed, std::int64_t round, const Placement& placement,
                                const TopologyOptions& options) {
  DrawKey key{.seed = seed,
              .purpose = Purpose::Cohort,
              .pass = kEdgePass,
              .round = static_cast<std::uint64_t>(round)};
  Cohort cohort;
  cohort.edges = draw(key, placement.edges(), options.edge_participation);
  key.pass = kClientPass;
  for (const std::int64_t edge : cohort.edges) {
    const std::vector<std::int64_t>& members = placement.clients_of_edge(edge);
    if (members.empty()) continue;  // a partition file may leave an edge without clients
    key.client = static_cast<std::uint64_t>(edge);
    for (const std::int64_t place :
         draw(key, static_cast<std::int64_t>(members.size()), options.participation)) {
      cohort.clients.push_back(members[static_cast<std::size_t>(place)]);
    }
  }
  std::sort(cohort.clients.begin(), cohort.clients.end());
  return cohort;
}

Cohort without_absent(Cohort drawn, std::int64_t round, const Stragglers& stragglers,
                      const Placement& placement) {
  if (!stragglers.stay_away()) return drawn;
  std::map<std::int64_t, std::vector<std::int64_t>>
      groups;  // by edge, where there are models of them
  for (const std::int64_t client : drawn.clients) {
    groups[drawn.edges.empty() ? 0 : placement.edge_of(client)].push_back(client);
  }
  std::vector<std::int64_t> here;
  for (const auto& [edge, clients] : groups) {
    const std::vector<std::int64_t> of_edge = stragglers.on_time(clients, round);
    here.insert(here.end(), of_edge.begin(), of_edge.end());
  }
  std::sort(here.begin(), here.end());
  std::ranges::set_difference(drawn.clients, here, std::back_inserter(drawn.away));
  drawn.clients = std::move(here);
  return drawn;
}

std::vector<std::int64_t> draw_by_samples(
    DrawKey key, const Cohort& drawn, const Placement& placement,
    const std::function<double(std::int64_t client)>& samples) {
  std::vector<std::int64_t> clients;
  std::map<std::int64_t, std::int64_t> wanted_of;  // by edge
  for (const auto* some : {&drawn.clients, &drawn.away}) {
    for (const std::int64_t client : *some) ++wanted_of[placement.edge_of(client)];
  }
  for (const std::int64_t edge : drawn.edges) {
    std::int64_t wanted = wanted_of[edge];
    const std::vector<std::int64_t>& members = placement.clients_of_edge(edge);
    std::vector<double> weights;
    for (const std::int64_t client : members) weights.push_back(samples(client));
    double left = std::accumulate(weights.begin(), weights.end(), 0.0);
    key.client = static_cast<std::uint64_t>(edge);
    Draws draws(key);
    for (; wanted > 0 && left > 0; --wanted) {
      const double place = draws.uniform() * left;
      std::size_t next = 0;  // sums of whole numbers are exact, so that one of them is above
      for (double sum = weights[0]; sum <= place; sum += weights[++next]) {
      }
      clients.push_back(members[next]);
      left -= weights[next];
      weights[next] = 0;
    }
  }
  std::sort(clients.begin(), clients.end());
  return clients;
}

std::int64_t hierarchical_cohort_limit(const Placement& placement, const TopologyOptions& options) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t edge = 0; edge < placement.edges(); ++edge) {
    const auto members = static_cast<std::int64_t>(placement.clients_of_edge(edge).size());
    sizes.push_back(members == 0 ? 0 : cohort_size(members, options.participation));
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const std::int64_t drawn = cohort_size(placement.edges(), options.edge_participation);
  std::int64_t limit = 0;
  for (std::int64_t e = 0; e < drawn; ++e) limit += sizes[static_cast<std::size_t>(e)];
  return limit;
}

}  // namespace fedhpc
