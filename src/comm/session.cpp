#include "fedhpc/comm/session.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <unistd.h>

#include <mpi.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

#include "comm/deadline.hpp"
#include "comm/heartbeat.hpp"
#include "comm/mpi_communicator.hpp"

namespace fedhpc {

Session::Session(int* argc, char*** argv, UseMpi use, double timeout_seconds)
    : uncaught_(std::uncaught_exceptions()) {
  const Launcher& started = launcher();
  run_log().set_rank(use == UseMpi::Off ? 0 : started.rank, host_name());
  if (use == UseMpi::Off || (use == UseMpi::Auto && !started.wants_mpi())) return;
  // Open MPI ends a process that srun has started and that it finds no way to the others from.
  alone_ = started.name == "srun" && started.tasks > 1 && !started.offers_ranks &&
           mpi_version().starts_with("OpenMPI");
  if (alone_) {
    rank_ = started.rank;
    return;
  }
  int begun = 0;
  MPI_Initialized(&begun);
  if (begun == 0) {
    const Deadline deadline(timeout_seconds, "MPI_Init");
    check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &threads_), "MPI_Init_thread");
    ends_ = true;
  } else {
    check_mpi(MPI_Query_thread(&threads_), "MPI_Query_thread");
  }
  active_ = true;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  alone_ = size_ == 1 && std::max(started.tasks, started.rank + 1) > 1;
  if (alone_ && started.tasks > 1) rank_ = started.rank;  // the first of those counted speaks
  run_log().set_rank(rank_, host_name());
}

void Session::check() const {
  if (alone_) {
    const Launcher& started = launcher();
    throw ConfigError(
        concat(started.name, " has started ", std::max(started.tasks, started.rank + 1),
               started.tasks > 1 ? "" : " or more", " tasks, but MPI (", mpi_version(),
               ") knows of 1 rank: each task would be a run of its own; ", started.advice,
               "; --run.mpi=off is for one process alone"));
  }
  if (active_) require_threads(threads_);
}

Session::~Session() {
  if (ends_ && std::uncaught_exceptions() == uncaught_) MPI_Finalize();
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

void require_threads(int provided) {
  if (provided >= MPI_THREAD_FUNNELED) return;
  throw ConfigError(concat("MPI (", mpi_version(),
                           ") was built without threads: it gives MPI_THREAD_SINGLE where "
                           "MPI_THREAD_FUNNELED is needed; take another MPI, or --run.mpi=off "
                           "for one process"));
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return mpi_word({text, static_cast<std::size_t>(length)});
}

std::string mpi_word(const std::string& version) {
  // "Open MPI v4.1.4, package: ...", "MPICH Version:      4.2.0\n...", "Intel(R) MPI Library 2021.9
  // for Linux* OS", "MPI VERSION    : CRAY MPICH version 8.1.25.17 (...": the words before the first
  // number that are a name, and the number.
  std::istringstream words(version);
  std::string name;
  for (std::string word; words >> word;) {
    const std::size_t digit = word.find_first_of("0123456789");
    if (digit <= 1 && word.find('.') != std::string::npos) {
      const std::size_t end = word.find_first_not_of("0123456789.abcrp", digit);
      return concat(name, name.empty() ? "" : "-", word.substr(digit, end - digit));
    }
    std::string lower = word.substr(0, word.find('('));
    for (char& letter : lower) letter = static_cast<char>(std::tolower(letter));
    if (lower == ":" || lower.starts_with("version") || lower == "library") {
      if (name == "MPI") name.clear();  // a label: "MPI VERSION"
      continue;
    }
    name += (name.empty() || name == "Open" ? "" : "-") + word.substr(0, word.find('('));
  }
  return name.empty() ? "MPI" : name;
}

std::string running_mpi() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return {};
  const std::string& name = launcher().name;
  return name.empty() ? mpi_version() : concat(name, ", ", mpi_version());
}

}  // namespace fedhpc
