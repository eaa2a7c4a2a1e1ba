#include "fedhpc/training/local_trainer.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/training/local_steps.hpp"

namespace fedhpc {

namespace {

/// Added to the pass of an evaluation's crops: beyond every pass and draw of a training.
constexpr std::int64_t kEvaluationCrops = std::int64_t{1} << 31;

/// The most training samples of a client; 1 where there are none.
std::int64_t largest_client(const Shard& shard) {
  std::int64_t largest = 1;
  for (const std::int64_t client : shard.clients()) {
    largest = std::max(largest, shard.train_count(client));
  }
  return largest;
}

}  // namespace

LocalTrainer::LocalTrainer(const Model& model, const Shard& shard, const TrainOptions& options,
                           std::uint64_t seed)
    : model_(model),
      shard_(shard),
      options_(options),
      seed_(seed),
      optimizer_(options.step_rule(), model.layout()),
      largest_client_(largest_client(shard)) {}

std::int64_t LocalTrainer::steps_for(std::int64_t samples) const {
  return local_steps(options_, *model_.layout(), samples);
}

SingleBatches LocalTrainer::singles() const { return single_batches(*model_.layout()); }

std::int64_t LocalTrainer::batch_capacity() const {
  return options_.batch_size == 0 ? largest_client_
                                  : std::min(options_.batch_size, largest_client_);
}

std::int64_t LocalTrainer::workspace_bytes(std::int64_t clients, at::ScalarType type) const {
  const StepRule& rule = optimizer_.rule();
  const std::int64_t rows = rule.is_plain() ? 0 : 1 + rule.state_rows();
  const at::TensorOptions nowhere = at::TensorOptions(type).device(at::kMeta);
  return model_.make_activations(clients, batch_capacity(), nowhere, Use::Training).bytes() +
         rows * clients * model_.layout()->size() *
             static_cast<std::int64_t>(c10::elementSize(type));
}

void LocalTrainer::reserve(std::int64_t clients, at::ScalarType type) {
  const Tensor& labels = workspace_.labels;
  const bool fits = labels.defined() && labels.size(0) >= clients &&
                    workspace_.activations.input().scalar_type() == type;
  if (fits) return;
  const std::int64_t batch = batch_capacity();
  const at::TensorOptions options = at::TensorOptions(type).device(shard_.device());
  workspace_.activations = model_.make_activations(clients, batch, options, Use::Training);
  workspace_.activations.precision = options_.precision;
  workspace_.labels = at::empty({clients, batch}, options.dtype(at::kLong));
  workspace_.loss.resize(static_cast<std::size_t>(clients));
  if (shard_.device().is_cpu()) return;
  graphs_.clear();
  workspace_.losses = at::zeros({clients}, options.dtype(at::kDouble));
  workspace_.other_losses = at::zeros_like(workspace_.losses);
}

std::int64_t LocalTrainer::visited(std::int64_t client, Share share) const {
  const auto samples = static_cast<double>(shard_.train_count(client));
  if (samples == 0) return 0;
  const double half = share.sampled == Sampled::Drawn ? 0.5 : 0;
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(std::floor(share.of * samples + half)));
}

std::int64_t LocalTrainer::batches(std::int64_t client, Share share) const {
  return std::min(most_batches_, BatchCursor::num_batches_per_epoch(
                                     visited(client, share), options_.batch_size, singles()));
}

std::int64_t LocalTrainer::steps_of(std::int64_t client, const Pass& pass) const {
  if (pass.share.of > 0) return batches(client, pass.share);
  const std::int64_t trained = steps(client);
  return trained > 0 && pass.steps > 0 ? pass.steps : trained;
}

double LocalTrainer::rate_of(std::int64_t client, const Pass& pass, std::int64_t step) const {
  if (options_.lr_unit == LrUnit::Round) return lr_factor(pass.round);
  const std::int64_t in_epoch = BatchCursor::num_batches_per_epoch(shard_.train_count(client),
                                                                   options_.batch_size, singles());
  const std::int64_t epochs = (steps(client) + in_epoch - 1) / in_epoch;  // of a training
  const std::int64_t trainings = (pass.round - 1) * trainings_ + training_;
  return options_.lr_factor(trainings * epochs + step / in_epoch);
}

std::vector<LocalTrainer::ClientPass> LocalTrainer::start_passes(
    std::span<const std::int64_t> clients, const Pass& pass) const {
  std::vector<ClientPass> passes;
  for (const std::int64_t client : clients) {
    const BatchPlan plan{.seed = seed_,
                         .purpose = pass.purpose,
                         .round = pass.round,
                         .client = client,
                         .pass = pass.number,
                         .samples = shard_.train_count(client),
                         .visited = pass.share.of > 0 ? visited(client, pass.share) : 0,
                         .sampled = pass.share.sampled,
                         .batch_size = options_.batch_size,
                         .singles = singles(),
                         .max_batches = steps_of(client, pass)};
    passes.push_back({.client = client, .steps = plan.max_batches, .batches = BatchCursor(plan)});
  }
  return passes;
}

const Shard& LocalTrainer::samples_of(std::span<const std::int64_t> clients) {
  if (!shard_.on_demand()) return shard_;
  std::vector<std::int64_t> ids(clients.begin(), clients.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (!in_hand_ || in_hand_->clients() != ids) in_hand_ = shard_.in_hand(std::move(ids));
  return *in_hand_;
}

Batch LocalTrainer::next_batch(const Shard& shard, ClientPass& client_pass, const Pass& pass,
                               std::int64_t step) const {
  if (step >= client_pass.steps) return {};
  for (; client_pass.taken <= step; ++client_pass.taken)
    client_pass.positions = client_pass.batches.next();
  const double rate = rate_of(client_pass.client, pass, step);
  if (shard.augment() != Augment::CropFlip) return {client_pass.positions, {}, rate};
  const std::int64_t of_evaluation = pass.purpose == Purpose::Evaluate ? kEvaluationCrops : 0;
  return {
      client_pass.positions,
      draw_crops(crop_key(seed_, pass.round, client_pass.client, of_evaluation + pass.number, step),
                 static_cast<std::int64_t>(client_pass.positions.size())),
      rate};
}

std::vector<BatchRun> LocalTrainer::gather_step(const Shard& shard, std::vector<ClientPass>& passes,
                                                const Pass& pass, std::int64_t step) {
  std::vector<BatchRun> runs;
  for (std::size_t c = 0; c < passes.size(); ++c) {
    const auto row = static_cast<std::int64_t>(c);
    const Batch batch = next_batch(shard, passes[c], pass, step);
    if (batch.positions.empty()) continue;
    shard.gather_train(passes[c].client, batch.positions, row, workspace_.activations.input(),
                       workspace_.labels, batch.crops);
    append(runs, row, batch);
  }
  return runs;
}

std::int64_t LocalTrainer::most_steps(std::span<const std::int64_t> clients,
                                      const Pass& pass) const {
  std::int64_t most = 0;
  for (const std::int64_t client : clients) most = std::max(most, steps_of(client, pass));
  return most;
}

LocalTrainer::Pass LocalTrainer::pass_of_draw(const Pass& pass, std::int64_t draw) {
  constexpr std::int64_t kPasses = LocalStep::kPassesPerDraw;
  require(draw == 0 || (0 < draw && draw < kPasses / 2 && pass.number < kPasses),
          "a draw's passes are its own");
  Pass drawn = pass;
  drawn.number += draw * kPasses;
  return drawn;
}

std::vector<TrainStatistics> LocalTrainer::each_step(std::span<const std::int64_t> clients,
                                                     const Pass& pass, at::ScalarType type,
                                                     const std::function<void(LocalStep&)>& take,
                                                     Steps steps) {
  const auto count = static_cast<std::int64_t>(clients.size());
  if (!shard_.device().is_cpu()) {
    return each_step_on_device(clients, pass, type, take, steps, nullptr);
  }
  reserve(count, type);
  const Shard& samples = samples_of(clients);
  const std::int64_t last_step = most_steps(clients, pass);

  std::int64_t number = 0;
  std::vector<std::vector<ClientPass>> draws;  // as far as they have been asked for
  const auto gather_draw = [&](std::int64_t draw) {
    for (auto d = static_cast<std::int64_t>(draws.size()); d <= draw; ++d) {
      draws.push_back(start_passes(clients, pass_of_draw(pass, d)));
    }
    return gather_step(samples, draws[static_cast<std::size_t>(draw)], pass_of_draw(pass, draw),
                       number);
  };
  const std::function<void(std::int64_t)> gather_again = gather_draw;

  std::vector<TrainStatistics> statistics(clients.size());
  for (; number < last_step; ++number) {
    LocalStep step(model_, number, gather_draw(0), count, workspace_, statistics, gather_again);
    take(step);
  }
  return statistics;
}

std::vector<TrainStatistics> LocalTrainer::each_step(std::span<const std::int64_t> clients,
                                                     std::int64_t round, std::int64_t pass,
                                                     at::ScalarType type,
                                                     const std::function<void(LocalStep&)>& take,
                                                     Steps steps) {
  return each_step(clients, {.round = round, .number = pass}, type, take, steps);
}

std::vector<TrainStatistics> LocalTrainer::each_batch(std::span<const std::int64_t> clients,
                                                      std::int64_t round, std::int64_t pass,
                                                      Share share, at::ScalarType type,
                                                      const std::function<void(LocalStep&)>& take) {
  require(0 < share.of && share.of <= 1, "a share of the samples is a part of them");
  return each_step(clients, {.round = round, .number = pass, .share = share}, type, take,
                   Steps::Any);
}

std::vector<TrainStatistics> LocalTrainer::train_(Rows& rows, std::span<const std::int64_t> clients,
                                                  std::int64_t round, const LocalWork& work) {
  const at::ScalarType type = rows.values.scalar_type();
  const at::TensorOptions options = rows.values.options();
  const auto count = static_cast<std::int64_t>(clients.size());
  if (work.map != nullptr) {
    require(!work.penalty.any() && work.columns.all(), "factors move as a whole, without penalty");
    if (!of_factors_ || of_factors_->layout() != rows.layout) {
      of_factors_.emplace(options_.step_rule(), rows.layout);
    }
    require(!work.goes_on, "an optimizer of factors starts afresh");
    of_factors_->reset(count, options);
    return each_step(
        clients, round, work.pass.value_or(0), type,
        [&](LocalStep& step) { step.descend_(rows, *work.map, *of_factors_); }, Steps::Alike);
  }
  if (work.goes_on) {
    optimizer_.go_on(count, work.columns);
  } else {
    optimizer_.reset(count, options, work.columns);
  }
  if (!shard_.device().is_cpu()) {
    return train_on_device_(rows, clients, {.round = round, .number = work.pass.value_or(0)}, work);
  }
  return each_step(clients, round, work.pass.value_or(0), type,
                   [&](LocalStep& step) { step.descend_(rows, optimizer_, work.penalty); });
}

void LocalTrainer::adapt_(const Rows& rows, std::span<const std::int64_t> clients,
                          std::int64_t round) {
  adapt_(rows, clients, round, 0, optimizer_);
}

void LocalTrainer::adapt_(const Rows& rows, std::span<const std::int64_t> clients,
                          std::int64_t round, std::int64_t steps, RowOptimizer& optimizer) {
  require(steps >= 0, "a number of steps is not negative");
  const at::ScalarType type = rows.values.scalar_type();
  optimizer.reset(rows.count(), rows.values.options());
  each_step(
      clients, {.round = round, .purpose = Purpose::Evaluate, .steps = steps}, type,
      [&](LocalStep& step) { step.descend_(rows, optimizer); }, Steps::Alike);
}

}  // namespace fedhpc
