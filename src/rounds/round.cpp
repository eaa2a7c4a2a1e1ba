#include "fedhpc/rounds/round.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

Round::Round(RoundServices& services, std::int64_t number, Cohort cohort)
    : services_(services), number_(number), cohort_(std::move(cohort)) {}

MeanServices Round::mean_services() {
  return {.topology = services_.topology,
          .layout = services_.model.layout(),
          .type = services_.type,
          .summation = services_.summation,
          .watch = services_.aggregate_watch};
}

Mean Round::mean() { return Mean(mean_services()); }

EdgeMean Round::edge_mean() { return EdgeMean(mean_services()); }

void Round::each_block(const std::function<void(Block&)>& work) {
  const Shard& shard = services_.shard;
  std::vector<std::int64_t> mine;
  for (const std::int64_t client : cohort_.clients) {
    if (shard.holds(client)) mine.push_back(client);
  }
  // Clients of like size side by side: long runs of equal batches, few idle rows in a block's last
  // steps.
  std::stable_sort(mine.begin(), mine.end(), [&](std::int64_t a, std::int64_t b) {
    return shard.train_count(a) > shard.train_count(b);
  });
  const auto width = static_cast<std::size_t>(services_.block_width);
  for (std::size_t first = 0; first < mine.size(); first += width) {
    const std::size_t count = std::min(width, mine.size() - first);
    Block block(*this, std::span(mine).subspan(first, count));
    work(block);
  }
}

double Round::weight_of(std::int64_t client, Weighting weighting) const {
  const auto samples = static_cast<double>(services_.partition.train.count(client));
  return weighting == Weighting::Samples ? samples : (samples > 0 ? 1.0 : 0.0);
}

void Round::to_edges_(const Rows& model, EdgeRows& edges) {
  const Timed timed(services_.aggregate_watch);
  for (const std::int64_t edge : cohort_.edges) {
    if (!services_.topology.edges().holds(edge)) continue;
    edges.rows.values[edge - edges.first].copy_(model.values[0]);
    if (!services_.topology.leads()) continue;  // the edge's other ranks hold the same row
    services_.ledger.book(Link::EdgeCloud, Direction::Down,
                          static_cast<std::int64_t>(model.values.nbytes()));
  }
}

void Round::edge_rounds(std::int64_t count, const std::function<void()>& edge_round) {
  client_link_ = Link::ClientEdge;
  for (edge_round_ = 0; edge_round_ < count; ++edge_round_) edge_round();
  edge_round_ = 0;
  client_link_ = Link::ClientCloud;
}

Rows Round::to_cloud(const EdgeRows& edges, Weighting weighting) {
  const Timed timed(services_.aggregate_watch);
  Topology& topology = services_.topology;
  WeightedSum sum(1, edges.rows.layout->size(), services_.summation);
  if (topology.leads()) {
    std::vector<double> weights(static_cast<std::size_t>(edges.count()), 0);
    for (const std::int64_t client : cohort_.clients) {
      const std::int64_t edge = topology.placement().edge_of(client);
      if (topology.edges().holds(edge)) weights[edge - edges.first] += weight_of(client, weighting);
    }
    const std::vector<std::int64_t> one_segment(weights.size(), 0);
    sum.add(one_segment, weights, edges.rows.values);
    for (const std::int64_t edge : cohort_.edges) {
      if (!topology.edges().holds(edge)) continue;
      services_.ledger.book(Link::EdgeCloud, Direction::Up,
                            static_cast<std::int64_t>(edges.rows.values[0].nbytes()));
    }
  }
  Tensor mean = quotients(sum.total(topology, Among::EdgeLeaders), services_.type);
  topology.from_leader_(mean);
  return {mean, edges.rows.layout};
}

std::span<const std::int64_t> Block::edges() {
  edges_.clear();
  const Placement& placement = round_.services_.topology.placement();
  for (const std::int64_t client : clients_) edges_.push_back(placement.edge_of(client));
  return edges_;
}

Rows Block::download(const Rows& model) {
  const Timed timed(round_.services_.aggregate_watch);
  Rows rows = model.replicate(count());
  round_.services_.ledger.book(round_.client_link_, Direction::Down,
                               static_cast<std::int64_t>(rows.values.nbytes()));
  return rows;
}

Rows Block::download(const EdgeRows& models) {
  const Timed timed(round_.services_.aggregate_watch);
  Tensor rows = at::empty({count(), models.rows.layout->size()}, models.rows.values.options());
  for (std::int64_t c = 0; c < count(); ++c) {
    rows[c].copy_(models.rows.values[edges()[c] - models.first]);
  }
  round_.services_.ledger.book(round_.client_link_, Direction::Down,
                               static_cast<std::int64_t>(rows.nbytes()));
  return {rows, models.rows.layout};
}

Rows Block::train(const Rows& start, const LocalWork& work) {
  const Timed timed(round_.services_.train_watch);
  LocalWork named = work;
  if (!named.pass) named.pass = round_.edge_round_;
  Rows rows = start.clone();
  const std::vector<TrainStatistics> trained =
      round_.services_.trainer.train_(rows, clients_, round_.number_, named);
  round_.statistics_.insert(round_.statistics_.end(), trained.begin(), trained.end());
  return rows;
}

Rows Block::upload(const Rows& rows) {
  round_.services_.ledger.book(round_.client_link_, Direction::Up,
                               static_cast<std::int64_t>(rows.values.nbytes()));
  return rows;
}

std::span<const double> Block::weights(Weighting weighting) {
  weights_.clear();
  for (const std::int64_t client : clients_) {
    weights_.push_back(round_.weight_of(client, weighting));
  }
  return weights_;
}

}  // namespace fedhpc
