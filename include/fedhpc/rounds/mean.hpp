#pragma once

#include <span>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// A weighted mean of rows over all clients of all ranks: one accumulator of P sums and the weight
/// in float64, one allreduce. Block sums are taken in the rows' own type.
class Mean {
 public:
  Mean(Communicator& comm, LayoutPtr layout, at::ScalarType type, Stopwatch& watch);

  /// Adds weights[c] * rows[c] for every client c of the rows.
  void add(std::span<const double> weights, const Rows& rows);

  /// The mean over all ranks, [1, P]; zeros when the weights sum to 0. Collective; to be called
  /// once.
  Rows reduce();

 private:
  Communicator& comm_;
  LayoutPtr layout_;
  at::ScalarType type_;
  Stopwatch& watch_;
  Tensor sums_;  // [P + 1] float64: P weighted sums, then the sum of weights
};

}  // namespace fedhpc
