#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/rounds/partial_round.hpp"

namespace fedhpc {

// A checkpoint that was written inside a round has these below /state/partial: of every rank, one
// after the other, integers and numbers. Their lengths are integers_counts [ranks] and
// numbers_counts [ranks].

/// The numbers of what this rank has done of the current round; none where `round` is null.
std::optional<PackedRound> pack_partial(const PartialRound* round);

/// Returns the bytes that those of all ranks have in a file. Collective.
std::int64_t bytes_of(const std::optional<PackedRound>& round, Communicator& comm);

/// Writes what every rank has done of the current round into a file that rank 0 has open
/// (others: nullptr). Writes nothing where there is none, on all ranks alike. Collective.
void write_partial(Communicator& comm, const h5::Handle* file,
                   const std::optional<PackedRound>& round);

/// Whether it wrote anything.
bool holds_partial(const h5::Handle& file);

/// Reads what write_partial() wrote; null where there is nothing. Collective. Throws DataError, the
/// same on every rank, where another number of ranks wrote it.
std::unique_ptr<PartialRound> read_partial(Communicator& comm, const h5::Handle* file,
                                           const std::string& path);

}  // namespace fedhpc
