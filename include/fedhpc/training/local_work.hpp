#pragma once

#include <cstdint>
#include <optional>

#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// What one local training pass of a client is, beside its data and the `train.*` keys.
struct LocalWork {
  /// Names the batches: the same pass of a round sees the same batches, another pass others. Unset:
  /// the number of the edge round, 0 outside edge rounds.
  std::optional<std::int64_t> pass{};
  /// Adds mu/2 ||w_k - centre_k||^2 to the loss of every step, over the trainable columns; 0: none.
  double mu = 0;
  /// The centres, [C, P]; read only where mu is above 0, and constant during the pass.
  Rows centre{};
};

}  // namespace fedhpc
