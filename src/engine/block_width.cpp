#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/engine/experiment.hpp"

namespace fedhpc {

namespace {

// Wide blocks cost a CPU its cache; on a device they hide the launches.
constexpr std::array<std::int64_t, 6> kWidths{1, 2, 4, 8, 16, 32};
constexpr std::array<std::int64_t, 8> kDeviceWidths{1, 8, 32, 64, 128, 256, 512, 1024};
constexpr double kShareOfDevice = 0.4;  // of its free memory, for a block
constexpr std::int64_t kSteps = 8;
constexpr int kRepetitions = 3;
constexpr double kWorthIt = 0.97;  // a wider block costs memory: it has to be clearly faster

/// The widest block of the device's widths that its memory holds.
std::int64_t widest_on_device(const LocalTrainer& trainer, const Rows& initial,
                              const BlockNeeds& needs) {
  const double room = kShareOfDevice * static_cast<double>(needs.free_device_bytes);
  // Captured steps hold rows and centres of their own; the pass before may be under way.
  constexpr std::int64_t kPasses = 2;
  const std::int64_t held = 2 * static_cast<std::int64_t>(initial.values.nbytes());
  std::int64_t widest = kDeviceWidths.front();
  for (const std::int64_t width : kDeviceWidths) {
    const std::int64_t bytes = trainer.workspace_bytes(width, initial.values.scalar_type()) +
                               width * (held + kPasses * needs.bytes_per_client);
    if (static_cast<double>(bytes) <= room) widest = width;
  }
  return widest;
}

/// Best seconds per client-step of a block of the shard's first `width` clients that have samples.
double seconds_per_step(LocalTrainer& trainer, const Rows& initial,
                        const std::vector<std::int64_t>& clients) {
  double best = std::numeric_limits<double>::max();
  const auto count = static_cast<std::int64_t>(clients.size());
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    Rows rows = initial.replicate(count);
    Stopwatch watch;
    watch.start();
    const auto trained = trainer.train_(rows, clients, /*round=*/0, LocalWork{});
    trained.front().loss.wait();  // for a device
    watch.stop();
    best = std::min(best, watch.seconds() / static_cast<double>(count * kSteps));
  }
  return best;
}

/// The same; infinity where a device's memory does not hold the block.
double seconds_where_it_fits(LocalTrainer& trainer, const Rows& initial,
                             const std::vector<std::int64_t>& clients) {
  try {
    return seconds_per_step(trainer, initial, clients);
  } catch (const c10::OutOfMemoryError&) {
    return std::numeric_limits<double>::infinity();
  }
}

/// The least of the ranks' numbers. Collective.
std::int64_t least(Communicator& comm, std::int64_t number) {
  Tensor most = at::full({1}, -number, at::kLong);
  comm.max_(most);
  return -most.item<std::int64_t>();
}

}  // namespace

std::int64_t measure_block_width(Communicator& comm, const Model& model, const Shard& shard,
                                 const TrainOptions& options, const Rows& initial,
                                 const BlockNeeds& needs) {
  TrainOptions few_steps = options;
  few_steps.local_epochs = 0;
  few_steps.local_steps = kSteps;
  LocalTrainer trainer(model, shard, few_steps, /*seed=*/0);
  std::vector<std::int64_t> with_samples;
  for (const std::int64_t client : shard.clients()) {
    if (shard.train_count(client) > 0) with_samples.push_back(client);
  }
  const bool device = on_device(initial.values);
  const std::span<const std::int64_t> widths =
      device ? std::span<const std::int64_t>(kDeviceWidths) : kWidths;
  // A rank is not expected to get more clients of a cohort than its share.
  std::int64_t share = std::max<std::int64_t>(1, needs.participants / comm.size());
  if (device) share = least(comm, std::min(share, widest_on_device(trainer, initial, needs)));

  Tensor seconds = at::zeros({std::ssize(widths)}, at::kDouble);
  auto* values = seconds.data_ptr<double>();
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] > share || with_samples.empty()) continue;
    std::vector<std::int64_t> clients;
    for (std::int64_t c = 0; c < widths[i]; ++c) {
      clients.push_back(with_samples[static_cast<std::size_t>(c) % with_samples.size()]);
    }
    values[i] = seconds_where_it_fits(trainer, initial, clients);
  }
  comm.sum_(seconds);
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    if (widths[i] <= share && values[i] < kWorthIt * values[chosen]) chosen = i;
  }
  return widths[chosen];
}

}  // namespace fedhpc
