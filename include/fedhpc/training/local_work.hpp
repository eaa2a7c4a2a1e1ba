#pragma once

#include <cstdint>
#include <optional>

#include "fedhpc/factorisations/row_map.hpp"
#include "fedhpc/training/penalty.hpp"

namespace fedhpc {

/// What one local training pass of a client is, beside its data and the `train.*` keys.
struct LocalWork {
  /// Names the batches: the same pass of a round sees the same batches, another pass others. Unset:
  /// the number of the edge round, 0 outside edge rounds.
  std::optional<std::int64_t> pass{};
  /// Those that move; the others stay, batch-norm statistics among them.
  Columns columns{};
  /// Of every step's loss; its centres are constant during the pass. Only where all columns move.
  Penalty penalty{};
  /// Rows [C, Q] of what the weights are a function of move in the place of the weights. Without
  /// penalty, and all columns.
  RowMap* map = nullptr;
  /// Whether the optimizer goes on from where it was after the block's last training, which moved
  /// the same columns; otherwise it starts afresh.
  bool goes_on = false;
};

}  // namespace fedhpc
