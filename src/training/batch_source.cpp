#include "fedhpc/training/batch_source.hpp"

#include <algorithm>
#include <cmath>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/local_steps.hpp"

namespace fedhpc {

namespace {

BatchSource::Pass pass_of_draw(const BatchSource::Pass& pass, std::int64_t draw) {
  constexpr std::int64_t kPasses = LocalStep::kPassesPerDraw;
  require(draw == 0 || (0 < draw && draw < kPasses / 2 && pass.number < kPasses),
          "a draw's passes are its own");
  BatchSource::Pass drawn = pass;
  drawn.number += draw * kPasses;
  return drawn;
}

}  // namespace

BatchSource::BatchSource(const Layout& model, const Shard& shard, const TrainOptions& options,
                         const Context& context)
    : model_(model),
      shard_(shard),
      options_(options),
      context_(context),
      stragglers_(options, context.seed),
      singles_(single_batches(model)),
      largest_client_(shard.largest_client()) {}

std::int64_t BatchSource::steps_for(std::int64_t samples) const {
  return local_steps(options_, model_, samples);
}

std::int64_t BatchSource::capacity() const {
  return options_.batch_size == 0 ? largest_client_
                                  : std::min(options_.batch_size, largest_client_);
}

std::int64_t BatchSource::visited(std::int64_t client, Share share) const {
  const auto samples = static_cast<double>(shard_.train_count(client));
  if (samples == 0) return 0;
  const double half = share.sampled == Sampled::Drawn ? 0.5 : 0;
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(std::floor(share.of * samples + half)));
}

std::int64_t BatchSource::batches(std::int64_t client, Share share) const {
  return std::min(most_batches_, BatchCursor::num_batches_per_epoch(visited(client, share),
                                                                    options_.batch_size, singles_));
}

std::int64_t BatchSource::steps_of(std::int64_t client, const Pass& pass) const {
  if (pass.share.of > 0) return batches(client, pass.share);
  const std::int64_t trained = steps_for(shard_.train_count(client));
  const std::int64_t all =
      trained > 0 && pass.steps > 0 ? std::min(most_batches_, pass.steps) : trained;
  return pass.purpose == Purpose::Batches ? stragglers_.steps(all, client, pass.round) : all;
}

double BatchSource::rate_of(std::int64_t client, const Pass& pass, std::int64_t step) const {
  if (pass.purpose == Purpose::Evaluate) return 1;  // models adapt alike after any round
  if (options_.lr_unit == LrUnit::Round) return options_.lr_factor_of_round(pass.round);
  const std::int64_t samples = shard_.train_count(client);
  const std::int64_t in_epoch =
      BatchCursor::num_batches_per_epoch(samples, options_.batch_size, singles_);
  const std::int64_t epochs = epochs_of_steps(options_, model_, samples);  // of a training
  const std::int64_t trainings = TrainOptions::rounds_behind(pass.round) * trainings_ + training_;
  return options_.lr_factor(trainings * epochs + step / in_epoch);
}

BatchSource::ClientPass BatchSource::start_pass(std::int64_t client, const Pass& pass) const {
  const BatchPlan plan{.seed = context_.seed,
                       .purpose = pass.purpose,
                       .round = pass.round,
                       .client = client,
                       .pass = pass.number,
                       .samples = shard_.train_count(client),
                       .visited = pass.share.of > 0 ? visited(client, pass.share) : 0,
                       .sampled = pass.share.sampled,
                       .batch_size = options_.batch_size,
                       .singles = singles_,
                       .max_batches = steps_of(client, pass)};
  return {.client = client, .steps = plan.max_batches, .batches = BatchCursor(plan)};
}

const Shard& BatchSource::samples_of(std::span<const std::int64_t> clients) {
  if (!shard_.on_demand()) return shard_;
  std::vector<std::int64_t> ids(clients.begin(), clients.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (!in_hand_ || in_hand_->clients() != ids) in_hand_ = shard_.in_hand(std::move(ids));
  return *in_hand_;
}

Batch BatchSource::next_batch(ClientPass& client_pass, const Pass& pass, std::int64_t step) const {
  if (step >= client_pass.steps) return {};
  for (; client_pass.taken <= step; ++client_pass.taken)
    client_pass.positions = client_pass.batches.next();
  const double rate = rate_of(client_pass.client, pass, step);
  if (samples_->augment() != Augment::CropFlip) return {client_pass.positions, {}, rate};
  return {
      client_pass.positions,
      draw_crops(crop_key(context_.seed, pass.round, client_pass.client, pass.drawn_number(), step),
                 static_cast<std::int64_t>(client_pass.positions.size())),
      rate};
}

void BatchSource::begin(std::span<const std::int64_t> clients, const Pass& pass,
                        const StepWorkspace& workspace) {
  clients_.assign(clients.begin(), clients.end());
  pass_ = pass;
  samples_ = &samples_of(clients);
  inputs_ = workspace.activations.input();
  targets_ = workspace.targets;
  steps_ = 0;
  for (const std::int64_t client : clients) steps_ = std::max(steps_, steps_of(client, pass));
  draws_.clear();
  if (context_.device.is_cpu()) return;
  planned_.begin(clients, steps_, capacity(), context_.device);
  if (steps_ > 0) open(0);
}

void BatchSource::open(std::int64_t draw) {
  static_cast<void>(pass_of_draw(pass_, draw));  // refuses numbers that are no draw's
  while (std::ssize(draws_) <= draw) {
    draws_.push_back({pass_of_draw(pass_, std::ssize(draws_)), {}});
    Draw& next = draws_.back();
    for (const std::int64_t client : clients_) {
      next.clients.push_back(start_pass(client, next.pass));
    }
    if (context_.device.is_cpu()) continue;
    planned_.plan(*samples_, [&](std::int64_t c, std::int64_t step) {
      return next_batch(next.clients[static_cast<std::size_t>(c)], next.pass, step);
    });
    next.clients.clear();  // the plan has all of it
  }
}

std::vector<BatchRun> BatchSource::gather(std::int64_t step, std::int64_t draw) {
  open(draw);
  if (!context_.device.is_cpu()) {
    planned_.gather(*samples_, draw, inputs_, targets_);
    return planned_.runs(draw, step);
  }
  Draw& of = draws_[static_cast<std::size_t>(draw)];
  std::vector<BatchRun> runs;
  for (std::size_t c = 0; c < of.clients.size(); ++c) {
    const auto row = static_cast<std::int64_t>(c);
    const Batch batch = next_batch(of.clients[c], of.pass, step);
    if (batch.positions.empty()) continue;
    samples_->gather_train(clients_[c], batch.positions, row, inputs_, targets_, batch.crops);
    append(runs, row, batch);
  }
  return runs;
}

}  // namespace fedhpc
