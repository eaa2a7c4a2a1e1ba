#include <algorithm>
#include <array>
#include <limits>

#include <ATen/ops/zeros.h>

#include "fedhpc/engine/experiment.hpp"

namespace fedhpc {

namespace {

constexpr std::array<std::int64_t, 6> kWidths{1, 2, 4, 8, 16, 32};
constexpr std::int64_t kSteps = 8;
constexpr int kRepetitions = 3;
constexpr double kWorthIt = 0.97;  // a wider block costs memory: it has to be clearly faster

/// Best seconds per client-step of a block of the shard's first `width` clients that have samples.
double seconds_per_step(LocalTrainer& trainer, const Rows& initial,
                        const std::vector<std::int64_t>& clients) {
  double best = std::numeric_limits<double>::max();
  const auto count = static_cast<std::int64_t>(clients.size());
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    Rows rows = initial.replicate(count);
    Stopwatch watch;
    watch.start();
    trainer.train_(rows, clients, /*round=*/0, LocalWork{});
    watch.stop();
    best = std::min(best, watch.seconds() / static_cast<double>(count * kSteps));
  }
  return best;
}

}  // namespace

std::int64_t measure_block_width(Communicator& comm, const Model& model, const Shard& shard,
                                 const TrainOptions& options, const Rows& initial,
                                 std::int64_t participants) {
  TrainOptions few_steps = options;
  few_steps.local_epochs = 0;
  few_steps.local_steps = kSteps;
  LocalTrainer trainer(model, shard, few_steps, /*seed=*/0);
  std::vector<std::int64_t> with_samples;
  for (const std::int64_t client : shard.clients()) {
    if (shard.train_count(client) > 0) with_samples.push_back(client);
  }
  // A rank is not expected to get more clients of a cohort than its share.
  const std::int64_t share = std::max<std::int64_t>(1, participants / comm.size());

  Tensor seconds = at::zeros({static_cast<std::int64_t>(kWidths.size())}, at::kDouble);
  auto* values = seconds.data_ptr<double>();
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    if (kWidths[i] > share || with_samples.empty()) continue;
    std::vector<std::int64_t> clients;
    for (std::int64_t c = 0; c < kWidths[i]; ++c) {
      clients.push_back(with_samples[static_cast<std::size_t>(c) % with_samples.size()]);
    }
    values[i] = seconds_per_step(trainer, initial, clients);
  }
  comm.sum_(seconds);
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < kWidths.size(); ++i) {
    if (kWidths[i] <= share && values[i] < kWorthIt * values[chosen]) chosen = i;
  }
  return kWidths[chosen];
}

}  // namespace fedhpc
