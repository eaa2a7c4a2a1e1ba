#include "fedhpc/comm/device_communicator.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"

#include "comm/fail_together.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/nccl_communicator.hpp"
#include "comm/staged_communicator.hpp"

namespace fedhpc {

namespace {

/// Sets this rank's device and gives its card's name; `neighbours`: ranks of this host before it.
std::string take_device(GpuLibrary& library, std::int64_t neighbours) {
  const int devices = library.devices();
  if (devices == 0) throw Error("no CUDA device");
  const int device = static_cast<int>(neighbours % devices);
  library.use_(device);
  return library.card(device);
}

/// The first rank that shares its card with a later one, and that one; -1 if none does.
std::pair<int, int> sharing(const std::vector<std::string>& cards) {
  for (auto first = cards.begin(); first != cards.end(); ++first) {
    const auto second = std::find(first + 1, cards.end(), *first);
    if (second != cards.end()) {
      return {static_cast<int>(first - cards.begin()), static_cast<int>(second - cards.begin())};
    }
  }
  return {-1, -1};
}

}  // namespace

std::int64_t ranks_on_card(Communicator& comm, const GpuLibrary& library, int device) {
  const std::string own = library.card(device);
  const std::vector<std::string> cards = comm.all_texts(own);
  return std::count(cards.begin(), cards.end(), own);
}

std::unique_ptr<Communicator> device_communicator(std::unique_ptr<Communicator> world,
                                                  GpuLibrary& library) {
  const std::vector<std::string> hosts = world->all_texts(host_name());
  const auto own = hosts.begin() + world->rank();
  std::string card;
  std::string failure;
  try {
    card = take_device(library, std::count(hosts.begin(), own, *own));
  } catch (const Error& error) {
    failure = concat("rank ", world->rank(), " on ", *own, ": ", error.what());
  }
  fail_together(*world, failure);
  if (world->size() == 1) return local_communicator();
  const std::vector<std::string> cards = world->all_texts(card);
  auto* mpi = dynamic_cast<MpiCommunicator*>(world.get());
  require(mpi != nullptr, "ranks beside each other talk by MPI");
  const auto [first, second] = sharing(cards);
  if (first < 0) {
    world.release();
    return std::make_unique<NcclCommunicator>(std::unique_ptr<MpiCommunicator>(mpi), library);
  }
  run_log().of_run(LogLevel::Warning,
                   concat("ranks ", first, " and ", second, " share a GPU of ",
                          hosts[static_cast<std::size_t>(first)],
                          ": sums go through host memory by MPI; start one rank per GPU for NCCL"));
  return std::make_unique<StagedCommunicator>(std::move(world), library);
}

}  // namespace fedhpc
