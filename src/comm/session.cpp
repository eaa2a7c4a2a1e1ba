#include "fedhpc/comm/session.hpp"

#include <cstdlib>
#include <exception>
#include <unistd.h>

#include <mpi.h>

#include "fedhpc/core/log.hpp"

#include "comm/deadline.hpp"
#include "comm/heartbeat.hpp"
#include "comm/mpi_communicator.hpp"

namespace fedhpc {

Session::Session(int* argc, char*** argv, Launch launch, double timeout_seconds)
    : uncaught_(std::uncaught_exceptions()) {
  run_log().set_rank(launched_rank(), host_name());
  // Open MPI's mpirun and SLURM's PMIx plugin announce themselves in the environment.
  const bool launched = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr ||
                        std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
  if (!launched && launch == Launch::Detect) return;
  const Deadline deadline(timeout_seconds, "MPI_Init");
  int provided = 0;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  active_ = true;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

Session::~Session() {
  if (active_ && std::uncaught_exceptions() == uncaught_) MPI_Finalize();
}

std::unique_ptr<Communicator> world_communicator(double timeout_seconds) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return local_communicator();
  const Deadline deadline(timeout_seconds, "starting up");
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  CommHandle world(copy);
  auto heartbeat = std::make_shared<Heartbeat>(world.handle(), timeout_seconds);
  return std::make_unique<MpiCommunicator>(std::move(world),
                                           TimedWait(timeout_seconds, std::move(heartbeat)));
}

void Session::abort(const std::string& message) const {
  if (active_) let_lower_ranks_speak(rank_);
  run_log().of_rank(LogLevel::Error, message);
  if (active_) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  // "Open MPI v4.1.4, package: ..." in the one case we meet; the first clause of any other.
  std::string first = version.substr(0, version.find_first_of(",\n"));
  if (first.starts_with("Open MPI v")) first = "OpenMPI-" + first.substr(10);
  for (char& letter : first) {
    if (letter == ' ') letter = '-';
  }
  return first;
}

}  // namespace fedhpc
