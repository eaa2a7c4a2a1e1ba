#include "fedhpc/rounds/round_state.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <ATen/ops/full.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// Clients that a rank trains or has work for: its own and guests.
std::int64_t clients_here(const RoundServices& rank) {
  const std::size_t guests = rank.moves == nullptr ? 0 : rank.moves->guests().size();
  return static_cast<std::int64_t>(rank.shard.clients().size() + guests);
}

/// Sends participants off to where they are trained; what is read of them hangs on `scored`.
void send_off(RoundServices& rank, std::int64_t t, const std::vector<std::int64_t>& clients,
              RoundState::Evaluated scored) {
  if (rank.moves == nullptr) return;
  rank.moves->begin(
      t, clients,
      scored == RoundState::Evaluated::Yes ? Shard::Packed::All : Shard::Packed::Training);
}

Cohort sent_off(RoundServices& rank, std::int64_t t, Cohort drawn, RoundState::Evaluated scored) {
  send_off(rank, t, drawn.clients, scored);
  return drawn;
}

/// The most changes that a client of any rank has sent. Collective.
std::int64_t most_sent(const RoundState& state) {
  Tensor most = at::full({1}, state.sent.most(), at::kLong);
  state.services.topology.world().max_(most);
  return most.item<std::int64_t>();
}

}  // namespace

RoundState::RoundState(RoundServices& rank, std::int64_t t, Cohort drawn, Evaluated scored,
                       std::unique_ptr<PartialRound> from)
    : services(rank),
      number(t),
      cohort(sent_off(rank, t, std::move(drawn), scored)),
      evaluated(scored),
      wire(services.books.ledger, services.network, services.shard, clients_here(rank),
           services.topology.placement().edges(), services.buffers,
           {.seed = services.context.seed, .round = t, .edge_round = &edge_round}, services.links),
      notes(services.series),
      log(services.leaving, std::move(from),
          {.save = [this](PartialRound& partial) { save(partial); },
           .restore = [this](const PartialRound& partial) { restore(partial); }}) {}

bool RoundState::stays(std::int64_t client) const {
  return services.shard.holds(client) &&
         (services.moves == nullptr || !services.moves->is_away(client));
}

std::vector<std::int64_t> RoundState::here() const {
  const ClientMoves* moves = services.moves;
  std::vector<std::int64_t> clients;
  for (const std::int64_t client : cohort.clients) {
    if (stays(client)) clients.push_back(client);
  }
  if (moves != nullptr) {
    clients.insert(clients.end(), moves->guests().begin(), moves->guests().end());
  }
  return clients;
}

void RoundState::replace_cohort(std::vector<std::int64_t> clients) {
  go_home();
  cohort.clients = std::move(clients);
  send_off(services, number, cohort.clients, evaluated);
  wire.clock().cover(clients_here(services));
}

void RoundState::go_home() {
  if (services.moves != nullptr) services.moves->go_home();
}

void RoundState::save(PartialRound& partial) const {
  partial.evaluated = evaluated == Evaluated::Yes;
  partial.ledger = wire.ledger();
  partial.times = wire.clock().times();
  partial.statistics = statistics;
  partial.notes = notes.parts();
}

void RoundState::restore(const PartialRound& partial) {
  const std::vector<std::int64_t> trained = here();
  for (const std::int64_t client : partial.done) {
    // Absent clients may have had their turn as well, at home.
    if (stays(client) || std::ranges::find(trained, client) != trained.end()) continue;
    throw Error(concat("round ", number, " was left with client ", client,
                       " trained on a rank that it is not trained on now; go on with the "
                       "run.device and the ranks on each host it was left with, or from a "
                       "checkpoint before it"));
  }
  wire.ledger() = partial.ledger;
  wire.clock().go_on_from(partial.times);
  statistics = partial.statistics;
  notes.go_on_from(partial.notes);
}

double RoundState::weight_of(std::int64_t client, Weighting weighting) const {
  const std::int64_t samples = services.partition.train.count(client);
  switch (weighting) {
    case Weighting::Samples:
      return static_cast<double>(samples);
    case Weighting::Batches:
      return static_cast<double>(services.trainer.batches_of(samples));
    case Weighting::Uniform:
      return samples > 0 ? 1 : 0;
  }
  throw std::logic_error("a weighting has a weight");
}

double RoundState::total_weight(Weighting weighting) const {
  double total = 0;
  for (const std::int64_t client : cohort.clients) total += weight_of(client, weighting);
  return total;
}

std::optional<std::int64_t> RoundState::noise_bearer() const {
  const auto first = std::ranges::find_if(
      cohort.clients, [&](std::int64_t one) { return weight_of(one, Weighting::Uniform) > 0; });
  return first != cohort.clients.end() ? std::optional(*first) : std::nullopt;
}

void RoundState::check_private() const {
  if (services.privacy == nullptr || log.goes_on() || !noise_bearer()) return;
  std::int64_t count = 0;
  for (const auto& [client, changes] : sent.by_client()) {
    if (weight_of(client, Weighting::Uniform) > 0) count += changes;
  }
  const std::int64_t most = most_sent(*this);
  Tensor all = at::full({1}, count, at::kLong);
  services.topology.world().sum_(all);
  services.privacy->check_uploads(most);
  services.privacy->check_all(all.item<std::int64_t>(), most,
                              std::llround(total_weight(Weighting::Uniform)));
}

void RoundState::check_unsent() const {
  if (services.privacy == nullptr || most_sent(*this) == 0) return;
  throw ConfigError(
      "privacy.* count the changes of rounds, and the method uploads in prepare(), of which "
      "epsilon knows nothing; upload in round()");
}

MeanServices RoundState::mean_services(const LayoutPtr& layout) {
  return {.topology = services.topology,
          .layout = layout ? layout : services.model.layout(),
          .context = services.context,
          .watch = services.books.aggregate_watch,
          .log = &log,
          .equal = services.privacy != nullptr && services.privacy->has_noise()
                       ? std::llround(total_weight(Weighting::Uniform))
                       : 0};
}

double RoundState::simulated_seconds() {
  if (cohort.edges.empty()) wire.clock().finish_edge_round();
  return wire.clock().seconds(services.topology.world());
}

}  // namespace fedhpc
