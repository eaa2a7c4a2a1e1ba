#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/session.hpp"

#include "comm/fake_gpu_library.hpp"

namespace fedhpc {

/// What carries tensors between ranks: MPI, NCCL, or MPI for ranks that share a card; the latter
/// two on FakeGpuLibrary, to which all tensors are on a device.
enum class Kind { Mpi, Nccl, Staged };

inline std::unique_ptr<Communicator> world_of(Kind kind, double timeout_seconds = 60) {
  std::unique_ptr<Communicator> world = world_communicator(timeout_seconds);
  if (kind == Kind::Mpi) return world;
  static FakeGpuLibrary library;
  library.cards = {"card"};
  if (kind == Kind::Nccl) {
    for (int r = 1; r < world->size(); ++r) library.cards.push_back(concat("card ", r));
  }
  return device_communicator(std::move(world), library);
}

inline const auto kKinds =
    ::testing::Combine(::testing::Values(at::kFloat, at::kDouble, at::kLong),
                       ::testing::Values(Kind::Mpi, Kind::Nccl, Kind::Staged));

inline std::string name_of(const ::testing::TestParamInfo<std::tuple<at::ScalarType, Kind>>& one) {
  const char* kinds[] = {"mpi", "nccl", "staged"};
  return concat(c10::toString(std::get<0>(one.param)), "_",
                kinds[static_cast<int>(std::get<1>(one.param))]);
}

}  // namespace fedhpc
