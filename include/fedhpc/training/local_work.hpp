#pragma once

#include <cstdint>
#include <optional>

#include "fedhpc/factorisations/row_map.hpp"
#include "fedhpc/training/penalty.hpp"

namespace fedhpc {

/// Describes one local training pass of a client, beside its data and the `train.*` keys.
struct LocalWork {
  /// Names the batches: the same pass of a round sees the same batches, another pass others. Unset:
  /// the number of the edge round, 0 outside edge rounds.
  std::optional<std::int64_t> pass{};
  /// The columns that move; the others stay, batch-norm statistics among them.
  Columns columns{};
  /// Added to every step's loss, only where all columns move. Its centres are constant in the pass.
  Penalty penalty{};
  /// Factors, rows [C, Q], move in the place of the weights. Without penalty, and all columns.
  RowMap* map = nullptr;
  /// Models [C, P] that stand still, to which those of the factors are added where columns do not
  /// pass through; none: 0.
  Rows base{};
  /// true: the optimizer goes on from the last training, which moved the same columns of the same
  /// clients in the same round; else training throws Error. false: it starts afresh.
  bool goes_on = false;
};

}  // namespace fedhpc
