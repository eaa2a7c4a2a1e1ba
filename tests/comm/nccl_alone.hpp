#pragma once

#include <memory>
#include <utility>

#include "comm/mpi_communicator.hpp"
#include "comm/nccl_communicator.hpp"

namespace fedhpc {

/// NCCL for the one rank of `world`, of which the program makes none.
inline std::unique_ptr<Communicator> nccl_alone(std::unique_ptr<Communicator> world,
                                                GpuLibrary& library) {
  std::unique_ptr<MpiCommunicator> mpi(&dynamic_cast<MpiCommunicator&>(*world));
  world.release();
  return std::make_unique<NcclCommunicator>(std::move(mpi), library);
}

}  // namespace fedhpc
