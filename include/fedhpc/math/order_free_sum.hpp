#pragma once

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

/// Sums each column over the rows of all ranks, [n]. This rank gives `parts` [m, n] float64, 0 or
/// more; m may differ between ranks. The same bits whichever rank has which rows, in any order.
///
/// With e the exponent of the largest number of all, a number x is scaled by 2^(44 - e) and cut
/// into the nearest integer and 44 more bits; both are summed as integers. So every number counts
/// to 2^-88 of the largest, and up to 2^19 rows are exact in that. Where a number is infinite or
/// undefined all sums are undefined. Sums are in host memory; parts on a device are summed there, to
/// the same bits, and the host waits for the largest number and for the sums. Collective: one number,
/// then 2 n integers.
Tensor order_free_sum(Communicator& comm, const Tensor& parts);

}  // namespace fedhpc
