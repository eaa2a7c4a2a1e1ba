#pragma once

#include <cstdint>
#include <memory>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/gpu_library.hpp"

namespace fedhpc {

/// A communicator for tensors on GPUs from `world`. Ranks of a host take its devices in turn, which
/// is one each where a launcher gave every rank its own. With a card for every rank that is NCCL;
/// where ranks share one, which NCCL refuses, sums go through host memory by MPI, and a warning says
/// what to do about it. One rank alone needs neither. Collective; throws
/// Error on every rank if one of them has no device. `library` outlives the communicator.
std::unique_ptr<Communicator> device_communicator(std::unique_ptr<Communicator> world,
                                                  GpuLibrary& library);

/// Returns the number of ranks of `comm` that use this rank's card `device`, itself among them.
/// Collective.
std::int64_t ranks_on_card(Communicator& comm, const GpuLibrary& library, int device);

}  // namespace fedhpc
