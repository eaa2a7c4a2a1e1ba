#include "fedhpc/rounds/block.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/to_device.hpp"

namespace fedhpc {

std::int64_t Block::round() const { return state_.number; }

std::int64_t Block::steps_of(std::int64_t client) const {
  return state_.services.trainer.steps(client, state_.number);
}

bool Block::trains(std::int64_t client) const { return steps_of(client) > 0; }

std::vector<std::int64_t> Block::local_steps() const {
  std::vector<std::int64_t> steps;
  for (const std::int64_t client : clients_) steps.push_back(steps_of(client));
  return steps;
}

std::vector<std::int64_t> Block::clients_at(std::span<const std::int64_t> places) const {
  std::vector<std::int64_t> clients;
  for (const std::int64_t place : places) {
    clients.push_back(clients_[static_cast<std::size_t>(place)]);
  }
  return clients;
}

std::span<const std::int64_t> Block::edges() {
  if (edges_.empty()) {
    const Placement& placement = state_.services.topology.placement();
    for (const std::int64_t client : clients_) edges_.push_back(placement.edge_of(client));
  }
  return edges_;
}

Rows Block::of_clients(const Rows& models) const {
  require(models.count() == 1 || models.count() == count(), "one model, or one per client");
  return models.count() == 1 ? models.replicate(count()) : models;
}

Rows Block::download(const Rows& models, const Codec& codec, std::int64_t beside) {
  const Timed timed(state_.services.books.aggregate_watch);
  return state_.wire.to_clients(of_clients(models), clients_, codec, beside);
}

Rows Block::download(const EdgeRows& models, const Codec& codec) {
  const Timed timed(state_.services.books.aggregate_watch);
  return state_.wire.to_clients(of_clients(models), clients_, codec);
}

Rows Block::download(const Rows& models, std::int64_t channel, std::int64_t beside) {
  const Timed timed(state_.services.books.aggregate_watch);
  return state_.wire.models_to_clients(of_clients(models), clients_, channel, beside);
}

Rows Block::download(const EdgeRows& models) {
  const Timed timed(state_.services.books.aggregate_watch);
  return state_.wire.models_to_clients(of_clients(models), clients_, /*channel=*/0);
}

Rows Block::download(const Received& message) {
  const Timed timed(state_.services.books.aggregate_watch);
  return state_.wire.to_clients(message, clients_);
}

Rows Block::of_clients(const EdgeRows& models) {
  const std::span<const std::int64_t> of_client = edges();
  if (on_device(models.rows.values)) {
    std::vector<std::int64_t> places;
    for (const std::int64_t edge : of_client) places.push_back(edge - models.first);
    const Tensor& edge_rows = models.rows.values;
    return {edge_rows.index_select(0, to_device(places, edge_rows.device())), models.rows.layout};
  }
  Tensor rows = at::empty({count(), models.rows.layout->size()}, models.rows.values.options());
  for (std::int64_t c = 0; c < count(); ++c) {
    rows[c].copy_(models.rows.values[of_client[c] - models.first]);
  }
  return {rows, models.rows.layout};
}

Rows Block::upload(const Rows& rows, const Codec& codec) {
  const Timed timed(state_.services.books.aggregate_watch);
  const Rows arrived = from_clients(rows, codec);
  if (state_.services.buffers != nullptr) scale_columns_(arrived, 0, Tag::Buffer);
  if (state_.services.privacy != nullptr) make_private_(arrived);
  return arrived;
}

Rows Block::from_clients(const Rows& rows, const Codec& codec) {
  const Rows arrived = state_.wire.from_clients(rows, clients_, codec);
  // What the server does to them is not done to the clients' own.
  const bool changes = state_.services.buffers != nullptr || state_.services.privacy != nullptr;
  return changes && arrived.values.is_alias_of(rows.values) ? arrived.clone() : arrived;
}

void Block::make_private_(const Rows& changes) {
  const Privacy& privacy = *state_.services.privacy;
  if (state_.services.buffers == nullptr && changes.layout->count(Tag::Buffer) > 0) {
    throw ConfigError(
        "privacy.clip holds for trainable columns, and batch norm's statistics of samples travel "
        "beside them; use a norm without them");
  }
  privacy.check_uploads(state_.sent.add(clients_));
  const std::vector<double> clipped = privacy.clip_(changes);
  if (!state_.cohort.stands_in) note(Privacy::kClipped, clipped);
  if (!privacy.has_noise()) return;
  if (state_.cohort.stands_in) scale_columns_(changes, 0, Tag::Trainable);
  const auto bearer = std::ranges::find(clients_, state_.noise_bearer());
  if (bearer != clients_.end()) {
    privacy.add_noise_(changes.narrow(bearer - clients_.begin()), round(), state_.log.pass(),
                       state_.sent.of(*bearer) - 1);
  }
  if (state_.services.expected == 0) return;
  // How many were drawn is not to be seen in the mean, which divides by their number.
  const double drawn = state_.total_weight(Weighting::Uniform);
  scale_columns_(changes, drawn / state_.services.expected, Tag::Trainable);
}

Rows Block::upload_models(const Rows& models, const Codec& codec) {
  const Timed timed(state_.services.books.aggregate_watch);
  if (state_.services.privacy != nullptr) {
    throw ConfigError(
        "privacy.clip shortens changes, and the method sends whole models; it has to "
        "send changes by upload(), or to tell of averaged_uploads = 0");
  }
  const Rows arrived = from_clients(models, codec);
  if (state_.services.buffers != nullptr) state_.services.buffers->put_initial_(arrived);
  return arrived;
}

Tensor Block::samples_of(std::int64_t client) const {
  const Shard& all = state_.services.shard;
  std::optional<Shard> made;
  if (all.on_demand()) made = all.in_hand({client});
  const Shard& shard = made ? *made : all;
  const std::int64_t count = shard.train_count(client);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  const Tensor features = at::empty({1, count, shard.features()}, scalar_type(shard.dtype()));
  const Tensor targets = at::empty({1, count, shard.targets().count}, shard.target_type());
  if (count > 0) shard.gather_train(client, positions, 0, features, targets);
  return features[0].to(at::kDouble);
}

Embedded Block::embed(const Rows& model, std::int64_t client) const {
  const Timed timed(state_.services.books.train_watch);
  return state_.services.evaluator.embed_training(model, state_.services.shard, client);
}

Tensor Block::send(Direction direction, const RandomColumns& columns) {
  const Timed timed(state_.services.books.aggregate_watch);
  state_.wire.book(direction, columns.payload_bytes(state_.services.context.type), clients_);
  return to_device(columns.draw(clients_, state_.number, direction),
                   state_.services.context.device);
}

void Block::book_gradients(const std::vector<TrainStatistics>& taken) {
  std::vector<std::int64_t> counts;
  for (const TrainStatistics& of_client : taken) counts.push_back(of_client.gradients);
  state_.wire.take_gradients(clients_, counts);
}

void Block::book_training(const std::vector<TrainStatistics>& trained) {
  book_gradients(trained);
  state_.statistics.insert(state_.statistics.end(), trained.begin(), trained.end());
}

Rows Block::train(const Rows& start, const LocalWork& work) {
  const Timed timed(state_.services.books.train_watch);
  LocalWork named = work;
  if (!named.pass) named.pass = state_.edge_round;
  Rows rows = start.clone();
  book_training(state_.services.trainer.train_(rows, clients_, state_.number, named));
  return rows;
}

void Block::each_step(Steps steps, const std::function<void(LocalStep&)>& take,
                      std::optional<std::int64_t> pass, std::int64_t count) {
  const Timed timed(state_.services.books.train_watch);
  const std::int64_t number = pass.value_or(state_.edge_round);
  book_training(
      state_.services.trainer.each_step(clients_, state_.number, number, take, steps, count));
}

Rows Block::compressed(const Rows& rows, const Codec& codec, std::int64_t step) const {
  return state_.wire.compressed(rows, clients_, codec, step);
}

void Block::each_batch(double share, std::int64_t pass, const std::function<void(LocalStep&)>& take,
                       Sampled sampled) {
  const Timed timed(state_.services.books.train_watch);
  const std::vector<TrainStatistics> seen =
      state_.services.trainer.each_batch(clients_, state_.number, pass, {share, sampled}, take);
  book_gradients(seen);
  for (const TrainStatistics& of_client : seen) {
    state_.statistics.push_back(
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
  return {state_, clients};
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
  OwnBuffers* buffers = state_.services.buffers;
  if (buffers == nullptr || buffers->travelling(rows.layout).is_whole()) return;
  keep(buffers->stored(), buffers->of(rows));
}

std::vector<double> Block::evaluate(const Rows& models) {
  require(models.count() == count(), "one model per client");
  std::vector<double> accuracies(clients_.size(), std::numeric_limits<double>::quiet_NaN());
  if (state_.evaluated == RoundState::Evaluated::No) return accuracies;
  const Timed timed(state_.services.books.evaluate_watch);
  const bool classified = state_.services.evaluator.loss().kind() != LossKind::MeanSquaredError;
  const std::vector<Score> scores =
      state_.services.evaluator.each_own(models, state_.services.shard, clients_);
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    if (scores[c].samples > 0 && classified) accuracies[c] = scores[c].correct / scores[c].samples;
  }
  return accuracies;
}

void Block::note(const std::string& metric, std::span<const double> values) {
  require(values.size() == clients_.size(), "one value per client");
  std::vector<double> of_trained(values.begin(), values.end());
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (!trains(clients_[c])) of_trained[c] = std::numeric_limits<double>::quiet_NaN();
  }
  note_received(metric, of_trained);
}

void Block::note_received(const std::string& metric, std::span<const double> values) {
  require(values.size() == clients_.size(), "one value per client");
  state_.notes.require_added(metric);
  for (const double value : values) {
    if (!std::isnan(value)) state_.notes.add(metric, value);
  }
}

std::span<const double> Block::weights(Weighting weighting) {
  std::vector<double>& weights = weights_[weighting];
  if (weights.empty()) {
    for (const std::int64_t client : clients_) {
      weights.push_back(state_.weight_of(client, weighting));
    }
  }
  return weights;
}

}  // namespace fedhpc
