#pragma once

#include <memory>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/rounds/partial_round.hpp"

namespace fedhpc {

// A checkpoint that was written inside a round has these below /state/partial: of every rank, one
// after the other, integers and numbers. Their lengths are integers_counts [ranks] and
// numbers_counts [ranks].

/// Writes what every rank has done of the current round into a file that rank 0 has open
/// (others: nullptr). Writes nothing where `round` is null, on all ranks alike. Collective.
void write_partial(Communicator& comm, const h5::Handle* file, const PartialRound* round);

/// Whether it wrote anything.
bool holds_partial(const h5::Handle& file);

/// Reads what write_partial() wrote; null where there is nothing. Collective. Throws DataError, the
/// same on every rank, where another number of ranks wrote it.
std::unique_ptr<PartialRound> read_partial(Communicator& comm, const h5::Handle* file,
                                           const std::string& path);

}  // namespace fedhpc
