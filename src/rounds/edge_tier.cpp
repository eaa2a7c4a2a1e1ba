#include "fedhpc/rounds/edge_tier.hpp"

#include <cmath>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::vector<std::int64_t> EdgeTier::drawn() const {
  std::vector<std::int64_t> mine;
  for (const std::int64_t edge : state_.cohort.edges) {
    if (state_.services.topology.edges().holds(edge)) mine.push_back(edge);
  }
  return mine;
}

std::vector<std::int64_t> EdgeTier::training() const {
  const std::vector<double> weights = weights_of_participants(Weighting::Samples);
  std::vector<std::int64_t> mine = drawn();
  std::erase_if(mine, [&](std::int64_t edge) {
    return weights[static_cast<std::size_t>(edge - state_.services.topology.edges().first)] == 0;
  });
  return mine;
}

std::vector<double> EdgeTier::weights_of_participants(Weighting weighting) const {
  const Range edges = state_.services.topology.edges();
  std::vector<double> weights(static_cast<std::size_t>(edges.size()), 0);
  for (const std::int64_t client : state_.cohort.clients) {
    const std::int64_t edge = state_.services.topology.placement().edge_of(client);
    if (edges.holds(edge)) weights[edge - edges.first] += state_.weight_of(client, weighting);
  }
  return weights;
}

std::vector<double> EdgeTier::equal_weights() const {
  std::vector<double> weights = weights_of_participants(Weighting::Uniform);
  for (double& weight : weights) weight = weight > 0 ? 1 : 0;
  return weights;
}

std::vector<double> EdgeTier::weights_of_clients(Weighting weighting) const {
  const Range mine = state_.services.topology.edges();
  std::vector<double> weights(static_cast<std::size_t>(mine.size()), 0);
  for (const std::int64_t edge : drawn()) {
    for (const std::int64_t client : state_.services.topology.placement().clients_of_edge(edge)) {
      weights[static_cast<std::size_t>(edge - mine.first)] += state_.weight_of(client, weighting);
    }
  }
  return weights;
}

void EdgeTier::draw_participants(std::uint64_t seed) {
  if (state_.services.absent_idle) return;  // a plan has chosen them
  if (of_round_.edges.empty()) of_round_ = state_.cohort;
  const Placement& placement = state_.services.topology.placement();
  const auto samples = [&](std::int64_t client) {
    return state_.weight_of(client, Weighting::Samples);
  };
  const DrawKey key{.seed = seed,
                    .purpose = Purpose::Cohort,
                    .pass = kFirstEdgeRoundPass + static_cast<std::uint64_t>(state_.edge_round),
                    .round = static_cast<std::uint64_t>(state_.number)};
  Cohort drawn{.clients = draw_by_samples(key, of_round_, placement, samples),
               .edges = of_round_.edges};
  drawn = without_absent(std::move(drawn), state_.number, state_.services.trainer.stragglers(),
                         placement);
  state_.replace_cohort(std::move(drawn.clients));
  of_edge_rounds_.insert(state_.cohort.clients.begin(), state_.cohort.clients.end());
}

void EdgeTier::download_(const Rows& model, EdgeRows& edges, const Codec& codec) {
  receive_(model, edges, &codec);
}

void EdgeTier::download_(const Rows& model, EdgeRows& edges) { receive_(model, edges, nullptr); }

void EdgeTier::receive_(const Rows& model, EdgeRows& edges, const Codec* codec) {
  const Timed timed(state_.services.books.aggregate_watch);
  const bool alike = codec != nullptr && codec->fitted({}) == nullptr;  // encoded once
  Received arrival;
  for (const std::int64_t edge : drawn()) {
    if (!alike || arrival.bytes.empty()) arrival = state_.wire.to_edge(model, edge, codec);
    edges.rows.values[edge - edges.first].copy_(arrival.rows.values[0]);
    if (!state_.services.topology.leads()) continue;  // the edge's other ranks hold the same row
    state_.wire.book_edge(Direction::Down, edge, arrival.bytes.front());
  }
}

void EdgeTier::rounds(std::int64_t count, const std::function<void()>& edge_round) {
  state_.wire.client_link = Link::ClientEdge;
  for (state_.edge_round = 0; state_.edge_round < count; ++state_.edge_round) {
    state_.services.trainer.at_training(state_.edge_round, count);
    edge_round();
    state_.wire.clock().finish_edge_round();
  }
  state_.edge_round = 0;
  state_.services.trainer.at_training();
  state_.wire.client_link = Link::ClientCloud;
  if (!of_edge_rounds_.empty())
    state_.cohort.clients.assign(of_edge_rounds_.begin(), of_edge_rounds_.end());
}

Rows EdgeTier::upload_mean(const EdgeRows& edges, std::span<const double> weights,
                           const Codec& codec, const Rows& otherwise) {
  const Timed timed(state_.services.books.aggregate_watch);
  const AtTask mean_of_edges(state_.services.topology.world().place(), Place::Task::Mean);
  const auto mean = [&] { return mean_at_cloud(edges, weights, codec, otherwise); };
  const auto blank = [&] {
    return at::zeros({1, edges.rows.layout->size()}, edges.rows.values.options());
  };
  return {
      state_.log.take(state_.log.open(nullptr), state_.services.topology, Among::All, mean, blank),
      edges.rows.layout};
}

Tensor EdgeTier::mean_at_cloud(const EdgeRows& edges, std::span<const double> weights,
                               const Codec& codec, const Rows& otherwise) {
  Topology& topology = state_.services.topology;
  WeightedSum sum(1, edges.rows.layout->size(), state_.services.context.summation,
                  state_.services.context.device);
  // An edge that was not drawn sends nothing and weighs nothing.
  const Rows arrived = edges.rows.clone();
  for (const std::int64_t edge : drawn()) {
    // The edge's other ranks hold the same memory of what it has sent.
    if (!topology.leads() && codec.feedback() == ErrorFeedback::None) continue;
    const bool counts = weights[static_cast<std::size_t>(edge - edges.first)] > 0;
    const Received arrival = state_.wire.from_edge(edges.of(edge), edge, codec, counts);
    arrived.values[edge - edges.first].copy_(arrival.rows.values[0]);
    if (topology.leads()) state_.wire.book_edge(Direction::Up, edge, arrival.bytes.front());
  }
  if (topology.leads()) {
    sum.add(std::vector<std::int64_t>(weights.size(), 0), weights, arrived.values);
  }
  Tensor mean = quotients(sum.total(topology, Among::EdgeLeaders), state_.services.context.type,
                          otherwise.values);
  topology.from_leader_(mean);
  return mean;
}

void EdgeTier::note(const std::string& metric, std::span<const double> values) {
  const Range mine = state_.services.topology.edges();
  require(static_cast<std::int64_t>(values.size()) == mine.size(), "one value per edge");
  state_.notes.require_added(metric);
  if (!state_.services.topology.leads()) return;  // the edge's other ranks know the same
  for (const std::int64_t edge : training()) {
    const double value = values[static_cast<std::size_t>(edge - mine.first)];
    if (!std::isnan(value)) state_.notes.add(metric, value);
  }
}

}  // namespace fedhpc
