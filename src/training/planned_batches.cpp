#include "fedhpc/training/planned_batches.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/data/device_kernels.hpp"

namespace fedhpc {

void append(std::vector<BatchRun>& runs, std::int64_t row, const Batch& batch) {
  const BatchRun alone{.first = row,
                       .count = 1,
                       .batch = static_cast<std::int64_t>(batch.positions.size()),
                       .rate = batch.rate};
  const bool continues = !runs.empty() && runs.back().batch == alone.batch &&
                         runs.back().rate == alone.rate &&
                         runs.back().first + runs.back().count == row;
  if (continues) {
    ++runs.back().count;
  } else {
    runs.push_back(alone);
  }
}

void PlannedBatches::begin(std::span<const std::int64_t> clients, std::int64_t steps,
                           std::int64_t batch, at::Device device) {
  clients_.assign(clients.begin(), clients.end());
  steps_ = steps;
  batch_ = batch;
  device_ = device;
  runs_.clear();
  if (step_.defined()) {
    step_.zero_();
  } else {
    step_ = at::zeros({1}, at::TensorOptions(at::kLong).device(device));
  }
}

void PlannedBatches::plan(const Shard& shard, const Next& next) {
  const auto count = static_cast<std::int64_t>(clients_.size());
  const std::size_t draw = runs_.size();
  runs_.emplace_back(static_cast<std::size_t>(steps_));
  constexpr std::int64_t kWords = sizeof(DevicePick) / sizeof(std::int64_t);
  const std::vector<std::int64_t> shape{steps_, count, batch_, kWords};
  const std::int64_t words = steps_ * count * batch_ * kWords;
  const Tensor host = gpu_library().pinned(shape, at::kLong);
  auto* pick = static_cast<DevicePick*>(host.data_ptr());
  std::vector<std::int64_t> first_rows;  // looked up once for all samples of a client
  std::vector<std::int64_t> counts;
  for (const std::int64_t client : clients_) {
    first_rows.push_back(shard.train_begin(client));
    counts.push_back(shard.train_count(client));
  }
  for (std::int64_t step = 0; step < steps_; ++step) {
    for (std::int64_t c = 0; c < count; ++c, pick += batch_) {
      const Batch batch = next(c, step);
      std::fill(pick + std::ssize(batch.positions), pick + batch_, DevicePick{-1, 0, 0, 0, 0});
      if (batch.positions.empty()) continue;
      append(runs_[draw][static_cast<std::size_t>(step)], c, batch);
      const auto [least, largest] = std::ranges::minmax(batch.positions);
      require(0 <= least && largest < counts[static_cast<std::size_t>(c)],
              "a position lies in the client's training list");
      for (std::size_t b = 0; b < batch.positions.size(); ++b) {
        const Crop crop = batch.crops.empty() ? Crop{} : batch.crops[b];
        pick[b] = {.row = first_rows[static_cast<std::size_t>(c)] + batch.positions[b],
                   .crop_row = static_cast<std::int32_t>(crop.row),
                   .crop_column = static_cast<std::int32_t>(crop.column),
                   .flip = crop.flip ? 1 : 0,
                   .unused = 0};
      }
    }
  }
  if (buffers_.size() <= draw) buffers_.resize(draw + 1);
  Tensor& buffer = buffers_[draw];
  if (!buffer.defined() || buffer.numel() < words) {
    buffer = at::empty({words}, at::TensorOptions(at::kLong).device(device_));
  }
  buffer.narrow(0, 0, words).copy_(host.view({words}), /*non_blocking=*/true);
}

void PlannedBatches::gather(const Shard& shard, std::int64_t draw, const Tensor& inputs,
                            const Tensor& targets) const {
  const auto count = static_cast<std::int64_t>(clients_.size());
  constexpr std::int64_t kWords = sizeof(DevicePick) / sizeof(std::int64_t);
  const Tensor picks = buffers_[static_cast<std::size_t>(draw)]
                           .narrow(0, 0, steps_ * count * batch_ * kWords)
                           .view({steps_, count, batch_, kWords});
  shard.gather_planned(picks, step_, inputs.narrow(0, 0, count), targets.narrow(0, 0, count));
}

void PlannedBatches::advance() const {
  device_kernels().advance(step_.data_ptr<std::int64_t>(), 1);
}

}  // namespace fedhpc
