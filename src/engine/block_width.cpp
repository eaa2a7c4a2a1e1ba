#include <algorithm>
#include <array>
#include <unistd.h>

#include <ATen/ops/full.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/engine/parts.hpp"

namespace fedhpc {

namespace {

// Wide blocks cost a CPU its cache; on a device they hide the launches.
constexpr std::array<std::int64_t, 6> kWidths{1, 2, 4, 8, 16, 32};
constexpr std::int64_t kWidestOnDevice = 1024;
constexpr double kShareOfDevice = 0.4;                       // of its free memory, for a block
constexpr std::int64_t kUsualCache = std::int64_t{1} << 20;  // bytes, where a host does not say

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The width of the fewest equal blocks for `share` clients that a device's memory holds: a narrow block after a wide
/// one takes nearly as long.
std::int64_t width_on_device(const LocalTrainer& trainer, const Rows& initial,
                             const BlockNeeds& needs, std::int64_t share) {
  const double room = kShareOfDevice * static_cast<double>(needs.free_device_bytes);
  // Captured steps hold rows and centres of their own; the pass before may be under way.
  constexpr std::int64_t kPasses = 2;
  constexpr std::int64_t kRows = 6;  // of a client in hand; few methods hold more at a time
  const auto row = static_cast<std::int64_t>(initial.values.nbytes());
  std::int64_t widest = 1;  // bytes grow with the width
  std::int64_t too_wide = kWidestOnDevice + 1;
  while (too_wide - widest > 1) {
    const std::int64_t width = (widest + too_wide) / 2;
    const std::int64_t bytes = trainer.workspace_bytes(width) + width * row * (2 + kPasses * kRows);
    (static_cast<double>(bytes) <= room ? widest : too_wide) = width;
  }
  const std::int64_t blocks = divided_up(share, widest);
  return divided_up(share, blocks);
}

/// The widest of a CPU's blocks of up to `share` clients whose rows and activations stay in a core's own cache.
std::int64_t width_in_cache(const LocalTrainer& trainer, const Rows& initial, std::int64_t share) {
  const std::int64_t told = sysconf(_SC_LEVEL2_CACHE_SIZE);
  const std::int64_t cache = told > 0 ? told : kUsualCache;
  const auto row = static_cast<std::int64_t>(initial.values.nbytes());
  std::int64_t widest = kWidths.front();
  for (const std::int64_t width : kWidths) {
    const std::int64_t bytes = width * row + trainer.workspace_bytes(width);
    if (width <= share && bytes <= cache) widest = width;
  }
  return widest;
}

/// The least of the ranks' numbers. Collective.
std::int64_t least(Communicator& comm, std::int64_t number) {
  Tensor most = at::full({1}, -number, at::kLong);
  comm.max_(most);
  return -most.item<std::int64_t>();
}

}  // namespace

std::int64_t choose_block_width(Communicator& comm, const LocalTrainer& trainer,
                                const Rows& initial, const BlockNeeds& needs) {
  // A rank is not expected to get more clients of a cohort than its share.
  const std::int64_t ranks = comm.size();
  const std::int64_t clients = std::max<std::int64_t>(1, needs.participants);
  return least(comm,
               on_device(initial.values)
                   ? width_on_device(trainer, initial, needs, divided_up(clients, ranks))
                   : width_in_cache(trainer, initial, std::max<std::int64_t>(1, clients / ranks)));
}

}  // namespace fedhpc
