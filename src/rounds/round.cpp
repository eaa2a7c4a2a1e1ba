#include "fedhpc/rounds/round.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

Round::Round(RoundServices& services, std::int64_t number, Cohort cohort, Evaluated evaluated,
             std::unique_ptr<PartialRound> from)
    : services_(services),
      number_(number),
      cohort_(std::move(cohort)),
      evaluated_(evaluated),
      wire_(services.ledger, services.network, services.shard,
            services.topology.placement().edges(), services.buffers),
      log_(services.leaving, std::move(from),
           {.save = [this](PartialRound& partial) { save(partial); },
            .restore = [this](const PartialRound& partial) { restore(partial); }}) {}

void Round::save(PartialRound& partial) const {
  partial.ledger = wire_.ledger();
  partial.times = wire_.clock().times();
  partial.statistics = statistics_;
  partial.notes = notes_.parts();
}

void Round::restore(const PartialRound& partial) {
  wire_.ledger() = partial.ledger;
  wire_.clock().go_on_from(partial.times);
  statistics_ = partial.statistics;
  notes_.go_on_from(partial.notes);
}

MeanServices Round::mean_services(const LayoutPtr& layout) {
  return {.topology = services_.topology,
          .layout = layout ? layout : services_.model.layout(),
          .type = services_.type,
          .device = services_.device,
          .summation = services_.summation,
          .watch = services_.aggregate_watch,
          .log = &log_};
}

Mean Round::mean(const LayoutPtr& layout) { return Mean(mean_services(layout)); }

ColumnMean Round::column_mean(const LayoutPtr& layout) { return ColumnMean(mean_services(layout)); }

EdgeMean Round::edge_mean() { return EdgeMean(mean_services(nullptr)); }

void Round::each_block(const std::function<void(Block&)>& work) {
  std::vector<std::int64_t> mine;
  for (const std::int64_t client : cohort_.clients) {
    if (services_.shard.holds(client)) mine.push_back(client);
  }
  each_block_of(std::move(mine), work);
}

void Round::each_absent_block(const std::function<void(Block&)>& work) {
  if (services_.absent_idle) return;
  std::vector<std::int64_t> absent;
  std::ranges::set_difference(services_.shard.clients(), cohort_.clients,
                              std::back_inserter(absent));
  each_block_of(std::move(absent), work);
}

void Round::each_block_of(std::vector<std::int64_t> mine, const std::function<void(Block&)>& work) {
  const Shard& shard = services_.shard;
  // Clients of like size side by side: long runs of equal batches, few idle rows in a block's last
  // steps.
  std::stable_sort(mine.begin(), mine.end(), [&](std::int64_t a, std::int64_t b) {
    return shard.train_count(a) > shard.train_count(b);
  });
  if (!log_.begin_pass(mine)) return;
  const auto width = static_cast<std::size_t>(services_.block_width);
  for (std::size_t first = 0; first < mine.size(); first += width) {
    if (log_.leaves((mine.size() - first + width - 1) / width)) return;
    const std::size_t count = std::min(width, mine.size() - first);
    Block block(*this, std::span(mine).subspan(first, count));
    work(block);
    log_.add_done(block.clients());
    services_.topology.world().beat();
  }
  log_.end_pass();
}

double Round::weight_of(std::int64_t client, Weighting weighting) const {
  const std::int64_t samples = services_.partition.train.count(client);
  switch (weighting) {
    case Weighting::Samples:
      return static_cast<double>(samples);
    case Weighting::Batches:
      return static_cast<double>(services_.trainer.batches_of(samples));
    case Weighting::Uniform:
      return samples > 0 ? 1 : 0;
  }
  throw std::logic_error("a weighting has a weight");
}

double Round::total_weight(Weighting weighting) const {
  double total = 0;
  for (const std::int64_t client : cohort_.clients) total += weight_of(client, weighting);
  return total;
}

std::vector<std::int64_t> Round::edges() const {
  std::vector<std::int64_t> mine;
  for (const std::int64_t edge : cohort_.edges) {
    if (services_.topology.edges().holds(edge)) mine.push_back(edge);
  }
  return mine;
}

std::vector<std::int64_t> Round::training_edges() const {
  const std::vector<double> weights = weights_of_participants(Weighting::Samples);
  std::vector<std::int64_t> mine = edges();
  std::erase_if(mine, [&](std::int64_t edge) {
    return weights[static_cast<std::size_t>(edge - services_.topology.edges().first)] == 0;
  });
  return mine;
}

std::vector<double> Round::weights_of_participants(Weighting weighting) const {
  const Range edges = services_.topology.edges();
  std::vector<double> weights(static_cast<std::size_t>(edges.size()), 0);
  for (const std::int64_t client : cohort_.clients) {
    const std::int64_t edge = services_.topology.placement().edge_of(client);
    if (edges.holds(edge)) weights[edge - edges.first] += weight_of(client, weighting);
  }
  return weights;
}

std::vector<double> Round::equal_weights() const {
  std::vector<double> weights = weights_of_participants(Weighting::Uniform);
  for (double& weight : weights) weight = weight > 0 ? 1 : 0;
  return weights;
}

std::vector<double> Round::weights_of_edges(Weighting weighting) const {
  const Range mine = services_.topology.edges();
  std::vector<double> weights(static_cast<std::size_t>(mine.size()), 0);
  for (const std::int64_t edge : edges()) {
    for (const std::int64_t client : services_.topology.placement().clients_of_edge(edge)) {
      weights[static_cast<std::size_t>(edge - mine.first)] += weight_of(client, weighting);
    }
  }
  return weights;
}

void Round::draw_edge_round(std::uint64_t seed) {
  if (edge_round_ == 0) drawn_once_ = cohort_.clients;
  const auto samples = [&](std::int64_t client) { return weight_of(client, Weighting::Samples); };
  cohort_.clients = draw_by_samples(
      {.seed = seed,
       .purpose = Purpose::Cohort,
       .pass = kFirstEdgeRoundPass + static_cast<std::uint64_t>(edge_round_),
       .round = static_cast<std::uint64_t>(number_)},
      {.clients = drawn_once_, .edges = cohort_.edges}, services_.topology.placement(), samples);
  drawn_so_far_.insert(cohort_.clients.begin(), cohort_.clients.end());
}

void Round::to_edges_(const Rows& model, EdgeRows& edges, const Codec& codec) {
  const Timed timed(services_.aggregate_watch);
  const Arrival arrival = wire_.encode(model, codec);
  for (const std::int64_t edge : this->edges()) {
    edges.rows.values[edge - edges.first].copy_(arrival.rows.values[0]);
    if (!services_.topology.leads()) continue;  // the edge's other ranks hold the same row
    wire_.book_edge(Direction::Down, edge, arrival.bytes.front());
  }
}

void Round::edge_rounds(std::int64_t count, const std::function<void()>& edge_round) {
  wire_.client_link = Link::ClientEdge;
  for (edge_round_ = 0; edge_round_ < count; ++edge_round_) {
    services_.trainer.at_training(edge_round_, count);
    edge_round();
    wire_.clock().finish_edge_round();
  }
  edge_round_ = 0;
  wire_.client_link = Link::ClientCloud;
  if (!drawn_so_far_.empty()) cohort_.clients.assign(drawn_so_far_.begin(), drawn_so_far_.end());
}

Rows Round::to_cloud(const EdgeRows& edges, std::span<const double> weights, const Codec& codec,
                     const Rows& otherwise) {
  const Timed timed(services_.aggregate_watch);
  const auto mean = [&] { return mean_at_cloud(edges, weights, codec, otherwise); };
  const auto blank = [&] {
    return at::zeros({1, edges.rows.layout->size()}, edges.rows.values.options());
  };
  return {log_.take(log_.open(nullptr), services_.topology, Among::All, mean, blank),
          edges.rows.layout};
}

Tensor Round::mean_at_cloud(const EdgeRows& edges, std::span<const double> weights,
                            const Codec& codec, const Rows& otherwise) {
  Topology& topology = services_.topology;
  WeightedSum sum(1, edges.rows.layout->size(), services_.summation, services_.device);
  if (topology.leads()) {
    const Arrival arrival = wire_.encode(edges.rows, codec);
    sum.add(std::vector<std::int64_t>(weights.size(), 0), weights, arrival.rows.values);
    for (const std::int64_t edge : this->edges()) {
      wire_.book_edge(Direction::Up, edge, arrival.bytes[edge - edges.first]);
    }
  }
  Tensor mean =
      quotients(sum.total(topology, Among::EdgeLeaders), services_.type, otherwise.values);
  topology.from_leader_(mean);
  return mean;
}

Coupling Round::coupling(std::span<const std::int64_t> ids) {
  return {services_.topology.world(), ids};
}

std::vector<Tensor> Round::on_server(std::int64_t n,
                                     const std::function<Tensor(std::int64_t)>& work) {
  return fedhpc::on_server(services_.topology.world(), n, work);
}

void Round::note_edges(const std::string& metric, std::span<const double> values) {
  const Range mine = services_.topology.edges();
  require(static_cast<std::int64_t>(values.size()) == mine.size(), "one value per edge");
  if (!services_.topology.leads()) return;  // the edge's other ranks know the same
  for (const std::int64_t edge : training_edges()) {
    notes_.add(metric, values[static_cast<std::size_t>(edge - mine.first)]);
  }
}

std::vector<double> Round::noted(const std::vector<std::string>& metrics) {
  return notes_.means(metrics, services_.topology, services_.summation);
}

double Round::noted_quantile(const std::string& metric, double fraction) {
  return notes_.quantile(metric, fraction, services_.topology);
}

double Round::simulated_seconds() {
  if (cohort_.edges.empty()) wire_.clock().finish_edge_round();
  return wire_.clock().seconds(services_.topology.world());
}

}  // namespace fedhpc
