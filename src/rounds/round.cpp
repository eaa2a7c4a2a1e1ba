#include "fedhpc/rounds/round.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/percentile.hpp"
#include "fedhpc/rounds/upload.hpp"

namespace fedhpc {

namespace {

/// What arrives of rows [C, n] sent through a codec, the rows themselves where it loses nothing,
/// and the bytes of each on the wire.
struct Arrival {
  /// `buffers`: what does not travel, and arrives as it is; null for none.
  Arrival(const Rows& rows, const Codec& codec, OwnBuffers* buffers) : values(rows.values) {
    const RowPart* part = buffers == nullptr ? nullptr : &buffers->travelling(rows.layout);
    if (part == nullptr || part->is_whole()) {
      send(codec);
      return;
    }
    values = part->of(rows).values;
    send(codec);
    const Rows whole = rows.clone();
    part->put_(whole, {values, part->layout()});
    values = whole.values;
  }

  void send(const Codec& codec) {
    if (on_device(values)) {
      send_from_device(codec);
      return;
    }
    if (!codec.lossless(values.scalar_type())) values = values.clone();
    bytes = codec.transmit_(values);
  }

  /// Codecs work on the host; what they send as it is stays where it lies.
  void send_from_device(const Codec& codec) {
    const at::ScalarType type = values.scalar_type();
    if (codec.linear(type)) {
      const auto of_row = values.size(1) * static_cast<std::int64_t>(values.itemsize());
      bytes.assign(static_cast<std::size_t>(values.size(0)), of_row);
      return;
    }
    const Tensor host = on_host(values);
    bytes = codec.transmit_(host);
    if (!codec.lossless(type)) values = host.to(values.device());
  }

  Tensor values;                    // [C, n]
  std::vector<std::int64_t> bytes;  // [C]
};

}  // namespace

Round::Round(RoundServices& services, std::int64_t number, Cohort cohort, Evaluated evaluated,
             std::unique_ptr<PartialRound> from)
    : services_(services),
      number_(number),
      cohort_(std::move(cohort)),
      evaluated_(evaluated),
      clock_(services.network, static_cast<std::int64_t>(services.shard.clients().size()),
             services.topology.placement().edges()),
      log_(services.leaving, std::move(from),
           {.save = [this](PartialRound& partial) { save(partial); },
            .restore = [this](const PartialRound& partial) { restore(partial); }}) {}

void Round::save(PartialRound& partial) const {
  partial.ledger = services_.ledger;
  partial.times = clock_.times();
  partial.statistics = statistics_;
  partial.notes = parts_;
}

void Round::restore(const PartialRound& partial) {
  services_.ledger = partial.ledger;
  clock_.go_on_from(partial.times);
  statistics_ = partial.statistics;
  parts_ = partial.notes;
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
  const Arrival arrival(model, codec, services_.buffers);
  const std::int64_t bytes = arrival.bytes.front();
  for (const std::int64_t edge : this->edges()) {
    edges.rows.values[edge - edges.first].copy_(arrival.values[0]);
    if (!services_.topology.leads()) continue;  // the edge's other ranks hold the same row
    services_.ledger.book(Link::EdgeCloud, Direction::Down, bytes);
    clock_.edge_transfer(edge, bytes);
  }
}

void Round::edge_rounds(std::int64_t count, const std::function<void()>& edge_round) {
  client_link_ = Link::ClientEdge;
  for (edge_round_ = 0; edge_round_ < count; ++edge_round_) {
    services_.trainer.at_training(edge_round_, count);
    edge_round();
    clock_.finish_edge_round();
  }
  edge_round_ = 0;
  client_link_ = Link::ClientCloud;
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
    const Arrival arrival(edges.rows, codec, services_.buffers);
    sum.add(std::vector<std::int64_t>(weights.size(), 0), weights, arrival.values);
    for (const std::int64_t edge : this->edges()) {
      const std::int64_t bytes = arrival.bytes[edge - edges.first];
      services_.ledger.book(Link::EdgeCloud, Direction::Up, bytes);
      clock_.edge_transfer(edge, bytes);
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

void Round::book(Link link, Direction direction, std::int64_t bytes,
                 std::span<const std::int64_t> clients) {
  for (const std::int64_t client : clients) {
    services_.ledger.book(link, direction, bytes);
    clock_.transfer(link, services_.shard.position(client), bytes);
  }
}

void Round::note_edges(const std::string& metric, std::span<const double> values) {
  const Range mine = services_.topology.edges();
  require(static_cast<std::int64_t>(values.size()) == mine.size(), "one value per edge");
  std::vector<double>& all = parts_[metric];
  if (!services_.topology.leads()) return;  // the edge's other ranks know the same
  for (const std::int64_t edge : training_edges()) {
    all.push_back(values[static_cast<std::size_t>(edge - mine.first)]);
  }
}

std::vector<double> Round::noted(const std::vector<std::string>& metrics) {
  std::vector<double> values(metrics.size(), std::numeric_limits<double>::quiet_NaN());
  if (metrics.empty()) return values;
  WeightedSum sum(static_cast<std::int64_t>(metrics.size()), 1, services_.summation);
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const auto whole = values_.find(metrics[m]);
    if (whole != values_.end()) values[m] = whole->second;
    const auto parts = parts_.find(metrics[m]);
    if (parts == parts_.end()) continue;
    const std::size_t n = parts->second.size();
    Tensor rows = at::empty({static_cast<std::int64_t>(n), 1}, at::kDouble);
    std::copy(parts->second.begin(), parts->second.end(), rows.data_ptr<double>());
    sum.add(std::vector<std::int64_t>(n, static_cast<std::int64_t>(m)), std::vector<double>(n, 1),
            rows);
  }
  const Tensor sums = sum.total(services_.topology, Among::All);
  for (std::size_t m = 0; m < values.size(); ++m) {
    const double* of_metric = sums.const_data_ptr<double>() + 2 * m;
    if (of_metric[1] > 0) values[m] = of_metric[0] / of_metric[1];
  }
  return values;
}

double Round::noted_quantile(const std::string& metric, double fraction) {
  const std::vector<double>& mine = parts_[metric];
  Tensor values = at::empty({static_cast<std::int64_t>(mine.size()), 1}, at::kDouble);
  std::copy(mine.begin(), mine.end(), values.data_ptr<double>());
  const Tensor all = services_.topology.world().all_gather(values);
  const auto* first = all.const_data_ptr<double>();
  return percentile({first, first + all.numel()}, fraction);
}

double Round::simulated_seconds() {
  if (cohort_.edges.empty()) clock_.finish_edge_round();
  return clock_.seconds(services_.topology.world());
}

std::int64_t Block::round() const { return round_.number_; }

bool Block::trains(std::int64_t client) const { return round_.services_.trainer.steps(client) > 0; }

std::span<const std::int64_t> Block::edges() {
  edges_.clear();
  const Placement& placement = round_.services_.topology.placement();
  for (const std::int64_t client : clients_) edges_.push_back(placement.edge_of(client));
  return edges_;
}

Rows Block::transfer(const Rows& rows, std::span<const std::int64_t> clients, Direction direction,
                     const Codec& codec, std::int64_t beside) {
  OwnBuffers* buffers = round_.services_.buffers;
  const Arrival arrival(rows, codec, buffers);
  for (std::size_t c = 0; c < clients.size(); ++c) {
    round_.book(round_.client_link_, direction, arrival.bytes[c] + beside, clients.subspan(c, 1));
  }
  const Rows arrived{arrival.values, rows.layout};
  if (buffers != nullptr && direction == Direction::Down) buffers->put_(arrived, clients);
  return arrived;
}

Rows Block::download(const Rows& model, const Codec& codec, std::int64_t beside) {
  const Timed timed(round_.services_.aggregate_watch);
  return transfer(model.replicate(count()), clients_, Direction::Down, codec, beside);
}

Rows Block::download_to_new(const StoredRows& store, const Rows& model, const Codec& codec) {
  const Timed timed(round_.services_.aggregate_watch);
  std::vector<std::int64_t> clients;
  for (const std::int64_t client : clients_) {
    if (!store.written(client)) clients.push_back(client);
  }
  return transfer(model.replicate(static_cast<std::int64_t>(clients.size())), clients,
                  Direction::Down, codec);
}

Rows Block::download(const EdgeRows& models, const Codec& codec) {
  const Timed timed(round_.services_.aggregate_watch);
  const std::span<const std::int64_t> of_client = edges();
  if (on_device(models.rows.values)) {
    std::vector<std::int64_t> places;
    for (const std::int64_t edge : of_client) places.push_back(edge - models.first);
    const Tensor& edge_rows = models.rows.values;
    return transfer(
        {edge_rows.index_select(0, fedhpc::upload(places, edge_rows.device())), models.rows.layout},
        clients_, Direction::Down, codec);
  }
  Tensor rows = at::empty({count(), models.rows.layout->size()}, models.rows.values.options());
  for (std::int64_t c = 0; c < count(); ++c) {
    rows[c].copy_(models.rows.values[of_client[c] - models.first]);
  }
  return transfer({rows, models.rows.layout}, clients_, Direction::Down, codec);
}

Rows Block::download_each(const Rows& models, const Codec& codec) {
  const Timed timed(round_.services_.aggregate_watch);
  require(models.count() == count(), "one model per client in hand");
  return transfer(models, clients_, Direction::Down, codec);
}

Rows Block::upload(const Rows& rows, const Codec& codec) {
  const Timed timed(round_.services_.aggregate_watch);
  const Rows arrived = transfer(rows, clients_, Direction::Up, codec);
  if (round_.services_.buffers != nullptr) scale_columns_(arrived, 0, Tag::Buffer);
  return arrived;
}

Rows Block::upload_models(const Rows& models, const Codec& codec) {
  const Timed timed(round_.services_.aggregate_watch);
  const Rows arrived = transfer(models, clients_, Direction::Up, codec);
  if (round_.services_.buffers != nullptr) round_.services_.buffers->put_initial_(arrived);
  return arrived;
}

Tensor Block::samples_of(std::int64_t client) const {
  const Shard& all = round_.services_.shard;
  std::optional<Shard> made;
  if (all.on_demand()) made = all.in_hand({client});
  const Shard& shard = made ? *made : all;
  const std::int64_t count = shard.train_count(client);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  const Tensor features = at::empty({1, count, shard.features()}, scalar_type(shard.dtype()));
  const Tensor labels = at::empty({1, count}, at::kLong);
  if (count > 0) shard.gather_train(client, positions, 0, features, labels);
  return features[0].to(at::kDouble);
}

Embedded Block::embed(const Rows& model, std::int64_t client) const {
  const Timed timed(round_.services_.train_watch);
  return round_.services_.evaluator.embed_training(model, round_.services_.shard, client);
}

Tensor Block::send(Direction direction, const RandomColumns& columns) {
  const Timed timed(round_.services_.aggregate_watch);
  round_.book(round_.client_link_, direction, columns.payload_bytes(round_.services_.type),
              clients_);
  return fedhpc::upload(columns.draw(clients_, round_.number_, direction), round_.services_.device);
}

void Block::book_gradients(const std::vector<TrainStatistics>& taken) {
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    round_.clock_.gradients(round_.services_.shard.position(clients_[c]), taken[c].gradients);
  }
}

void Block::book_training(const std::vector<TrainStatistics>& trained) {
  book_gradients(trained);
  round_.statistics_.insert(round_.statistics_.end(), trained.begin(), trained.end());
}

Rows Block::train(const Rows& start, const LocalWork& work) {
  const Timed timed(round_.services_.train_watch);
  LocalWork named = work;
  if (!named.pass) named.pass = round_.edge_round_;
  Rows rows = start.clone();
  book_training(round_.services_.trainer.train_(rows, clients_, round_.number_, named));
  return rows;
}

void Block::each_step(const std::function<void(LocalStep&)>& take,
                      std::optional<std::int64_t> pass) {
  each_step(Steps::Any, take, pass);
}

void Block::each_step(Steps steps, const std::function<void(LocalStep&)>& take,
                      std::optional<std::int64_t> pass) {
  const Timed timed(round_.services_.train_watch);
  book_training(round_.services_.trainer.each_step(clients_, round_.number_,
                                                   pass.value_or(round_.edge_round_),
                                                   round_.services_.type, take, steps));
}

void Block::each_batch(double share, std::int64_t pass, const std::function<void(LocalStep&)>& take,
                       Sampled sampled) {
  const Timed timed(round_.services_.train_watch);
  const std::vector<TrainStatistics> seen = round_.services_.trainer.each_batch(
      clients_, round_.number_, pass, {share, sampled}, round_.services_.type, take);
  book_gradients(seen);
  for (const TrainStatistics& of_client : seen) {
    round_.statistics_.push_back(
        {.gradients = of_client.gradients, .gradient_values = of_client.gradient_values});
  }
}

Block Block::only(std::span<const std::int64_t> clients) const {
  auto next = clients_.begin();
  for (const std::int64_t client : clients) {
    next = std::find(next, clients_.end(), client);
    require(next != clients_.end(), "some of a block's clients, in its order");
    ++next;
  }
  return {round_, clients};
}

void Block::keep(StoredRows& store, const Rows& rows) {
  const auto trains = [&](std::size_t c) { return this->trains(clients_[c]); };
  for (std::size_t first = 0; first < clients_.size();) {
    std::size_t count = 0;  // side by side
    while (first + count < clients_.size() && trains(first + count)) ++count;
    if (count > 0) {
      store.write(clients_.subspan(first, count),
                  {rows.values.narrow(0, static_cast<std::int64_t>(first),
                                      static_cast<std::int64_t>(count)),
                   rows.layout});
    }
    first += count + 1;
  }
}

void Block::keep_buffers(const Rows& rows) {
  OwnBuffers* buffers = round_.services_.buffers;
  if (buffers != nullptr) keep(buffers->stored(), buffers->of(rows));
}

std::vector<double> Block::evaluate(const Rows& models) {
  require(models.count() == count(), "one model per client");
  std::vector<double> accuracies(clients_.size(), std::numeric_limits<double>::quiet_NaN());
  if (round_.evaluated_ == Round::Evaluated::No) return accuracies;
  const Timed timed(round_.services_.evaluate_watch);
  const std::vector<Score> scores =
      round_.services_.evaluator.each_own(models, round_.services_.shard, clients_);
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    if (scores[c].samples > 0) accuracies[c] = scores[c].correct / scores[c].samples;
  }
  return accuracies;
}

void Block::note(const std::string& metric, std::span<const double> values) {
  require(values.size() == clients_.size(), "one value per client");
  std::vector<double>& all = round_.parts_[metric];
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (!trains(clients_[c]) || std::isnan(values[c])) continue;
    all.push_back(values[c]);
  }
}

std::span<const double> Block::weights(Weighting weighting) {
  weights_.clear();
  for (const std::int64_t client : clients_) {
    weights_.push_back(round_.weight_of(client, weighting));
  }
  return weights_;
}

}  // namespace fedhpc
