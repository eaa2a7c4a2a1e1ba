#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/gpu_library.hpp"

namespace fedhpc {

/// Makes a communicator for tensors on GPUs from `world`. Ranks of a host take its devices in turn,
/// which is one each where a launcher gave every rank its own. With a card for every rank NCCL does
/// the work. NCCL refuses ranks that share a card: sums then go through host memory by MPI, and
/// `warn` is called on rank 0 with advice. One process alone needs neither. Collective; throws
/// Error on every rank if one of them has no device. `library` outlives the communicator.
std::unique_ptr<Communicator> device_communicator(
    std::unique_ptr<Communicator> world, GpuLibrary& library,
    const std::function<void(const std::string&)>& warn);

/// Returns the number of ranks of `comm` that use this rank's card `device`, itself among them.
/// Collective.
std::int64_t ranks_on_card(Communicator& comm, const GpuLibrary& library, int device);

}  // namespace fedhpc
