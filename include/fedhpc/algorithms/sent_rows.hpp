#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/rounds/block.hpp"

namespace fedhpc {

/// Rows that the server has received from this rank's participants of a round, in the order of
/// arrival. Clients without training samples are left out.
class SentRows {
 public:
  /// Takes row c of `rows` [C, P] from the block's client c, of this weight.
  void add(const Block& block, std::span<const double> weights, const Rows& rows);

  const std::vector<std::int64_t>& clients() const { return clients_; }  ///< ids, [S_r]
  Tensor weights() const;                                                ///< [S_r] float64
  /// Gives the rows away, one below the other: [S_r, P], of the type of `like` [1, P]. A second
  /// call gives [0, P].
  Rows take(const Rows& like);

 private:
  std::vector<std::int64_t> clients_;
  std::vector<double> weights_;
  std::vector<Tensor> rows_;  // each [1, P]
};

}  // namespace fedhpc
