// Scoring on a device: many chunks of samples in one pass through the model.

#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/training/evaluator.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kBytes = std::int64_t{1} << 30;  // of activations
constexpr std::int64_t kMostLanes = 128;

}  // namespace

Tensor Evaluator::score_on_device(const Rows& rows, const Shard& shard,
                                  const std::vector<Stretch>& stretches) {
  const DeviceScope range(true, "evaluation");
  const bool shared = rows.count() == 1;
  // Lanes side by side in a pass: a client each or, of a single model, a chunk each.
  std::vector<Stretch> lanes;
  std::int64_t samples = 0;
  for (const Stretch& stretch : stretches) {
    samples += stretch.end - stretch.begin;
    if (!shared) {
      lanes.push_back(stretch);
      continue;
    }
    for (std::int64_t first = stretch.begin; first < stretch.end; first += kChunk) {
      lanes.push_back({first, std::min(first + kChunk, stretch.end)});
    }
  }
  if (lanes.empty()) return at::empty({loss_.measures(), 0}, at::kDouble);
  const Tensor scores =
      at::empty({loss_.measures(), samples}, context_.options().dtype(at::kDouble));
  const std::int64_t of_lane =
      std::max<std::int64_t>(1, activations_.bytes()) / activations_.input().size(0);
  const std::int64_t width = std::clamp<std::int64_t>(
      kBytes / of_lane, 1, std::min<std::int64_t>(kMostLanes, std::ssize(lanes)));
  if (activations_.input().size(0) < width) activations_ = room_for(width);
  reserve_targets(shard, width);
  std::int64_t begin_of_group = 0;  // in the scores
  for (std::int64_t first = 0; first < std::ssize(lanes); first += width) {
    const std::int64_t count = std::min<std::int64_t>(width, std::ssize(lanes) - first);
    const Activations part = activations_.narrow(0, count, kChunk);
    const Tensor weights = shared ? rows.values.expand({count, rows.values.size(1)})
                                  : rows.values.narrow(0, first, count);
    std::int64_t longest = 0;
    for (std::int64_t l = first; l < first + count; ++l) {
      longest = std::max(longest, lanes[l].end - lanes[l].begin);
    }
    for (std::int64_t chunk = 0; chunk < longest; chunk += kChunk) {
      const auto each_lane = [&](const auto& work) {
        std::int64_t place = begin_of_group;
        for (std::int64_t c = 0; c < count; ++c) {
          const Stretch& lane = lanes[first + c];
          const std::int64_t begin = lane.begin + chunk;
          const std::int64_t length = std::min(kChunk, lane.end - begin);
          if (length > 0) work(c, begin, length, place + chunk);
          place += lane.end - lane.begin;
        }
      };
      each_lane([&](std::int64_t c, std::int64_t begin, std::int64_t length, std::int64_t) {
        shard.gather_test(begin, begin + length, part.input()[c].narrow(0, 0, length), targets_[c]);
      });
      model_.forward(weights, part);  // what is beyond a lane's end is not read again
      each_lane([&](std::int64_t c, std::int64_t, std::int64_t length, std::int64_t place) {
        loss_.score(part.logits()[c].narrow(0, 0, length), targets_[c].narrow(0, 0, length),
                    scores.narrow(1, place, length));
      });
      on_chunk_();
    }
    for (std::int64_t l = first; l < first + count; ++l) {
      begin_of_group += lanes[l].end - lanes[l].begin;
    }
  }
  return on_host(scores);
}

}  // namespace fedhpc
