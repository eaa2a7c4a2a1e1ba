// Who takes part in a round, and how many may.

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "fedhpc/engine/parts.hpp"

namespace fedhpc {

std::int64_t Parts::cohort_mean() const {
  return has_edge_models() ? hierarchical_cohort_limit(placement(), config.topology)
                           : cohort_size(partition.clients(), config.topology.participation);
}

std::int64_t Parts::cohort_limit() const {
  return draws_each() ? draw_each_limit(partition.clients(), config.topology.participation)
                      : cohort_mean();
}

bool Parts::draws_each() const {
  return config.privacy.on() && config.privacy.noise > 0 && config.topology.participation < 1;
}

double Parts::expected_participants() const {
  double clients = 0;
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    if (partition.train.count(client) > 0) clients += 1 - trainer->stragglers().away_share(client);
  }
  return clients * static_cast<double>(cohort_mean()) / static_cast<double>(partition.clients());
}

std::int64_t Parts::participants_limit() const {
  return std::min(partition.clients(), method().traits().cohorts_in_round * cohort_limit());
}

Cohort Parts::everybody() const {
  Cohort all;
  all.clients.resize(static_cast<std::size_t>(partition.clients()));
  std::iota(all.clients.begin(), all.clients.end(), 0);
  return all;
}

Cohort Parts::draw(std::int64_t round) const {
  if (draws_each()) return draw_each_apart(round);
  return without_absent(
      has_edge_models()
          ? draw_hierarchical_cohort(context.seed, round, placement(), config.topology)
          : draw_cohort(context.seed, round, partition.clients(), config.topology.participation),
      round, trainer->stragglers(), placement());
}

Cohort Parts::draw_each_apart(std::int64_t round) const {
  const std::int64_t clients = partition.clients();
  Cohort drawn = draw_each(context.seed, round, clients, config.topology.participation);
  // Nobody stays for being the only one: whether a client takes part depends on no other.
  const auto is_away = [&](std::int64_t client) {
    return trainer->stragglers().is_away(client, round);
  };
  std::ranges::copy_if(drawn.clients, std::back_inserter(drawn.away), is_away);
  std::erase_if(drawn.clients, is_away);
  return with_stand_in(std::move(drawn), context.seed, round, clients,
                       [&](std::int64_t client) { return partition.train.count(client) > 0; });
}

std::int64_t Parts::most_together() const {
  if (!has_edge_models()) return cohort_limit();
  TopologyOptions one_edge = config.topology;
  one_edge.edge_participation = 0;  // one is always drawn
  return hierarchical_cohort_limit(placement(), one_edge);
}

}  // namespace fedhpc
