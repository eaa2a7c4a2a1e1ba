#pragma once

#include <cstdint>
#include <optional>

#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// The term mu/2 ||w_k - centre_k||^2 of a loss, over the trainable columns.
struct Proximal {
  double mu = 0;  ///< 0: none
  Rows centre{};  ///< [C, P]; read only where mu is above 0
};

/// What one local training pass of a client is, beside its data and the `train.*` keys.
struct LocalWork {
  /// Names the batches: the same pass of a round sees the same batches, another pass others. Unset:
  /// the number of the edge round, 0 outside edge rounds.
  std::optional<std::int64_t> pass{};
  /// Of every step's loss; its centres are constant during the pass.
  Proximal proximal{};
};

}  // namespace fedhpc
