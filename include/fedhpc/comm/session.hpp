#pragma once

#include <memory>
#include <string>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/launcher.hpp"

namespace fedhpc {

constexpr double kStartTimeout = 600;  // s, where no configuration says otherwise

/// MPI from start to end of the process. With UseMpi::Auto it initialises MPI only when a launcher
/// started this process, so that a single process needs no MPI daemon. It finalises what it has
/// initialised, unless an exception is unwinding: MPI_Finalize would wait for ranks that never come.
class Session {
 public:
  /// `timeout_seconds`: how long this rank waits for the others to start.
  Session(int* argc, char*** argv, UseMpi use = UseMpi::Auto,
          double timeout_seconds = kStartTimeout);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Throws ConfigError where the launcher has started several tasks and MPI knows of one, which
  /// would make a run of each, and where MPI was built without threads.
  void check() const;

  /// Of MPI; where MPI knows of one rank and the launcher of more, the launcher's.
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Says `fedhpc: error: rank R on HOST: message` and ends all ranks with exit code 1.
  [[noreturn]] void abort(const std::string& message) const;

 private:
  bool active_ = false;
  bool ends_ = false;   // MPI, which it has initialised
  bool alone_ = false;  // of several tasks, each with an MPI of its own
  int rank_ = 0;
  int size_ = 1;
  int threads_ = 0;
  int uncaught_ = 0;
};

/// Returns all ranks of the running MPI session, or one process alone when MPI is not initialised.
/// Its collectives wait for other ranks for `timeout_seconds`, and so does this call.
std::unique_ptr<Communicator> world_communicator(double timeout_seconds);

/// The name of this host.
std::string host_name();

/// Throws ConfigError where what MPI_Init_thread has provided is not enough: this process has
/// threads, of which one speaks to MPI.
void require_threads(int provided);

/// The version of the MPI library in one word, e.g. "OpenMPI-4.1.4".
std::string mpi_version();
/// The same of what MPI_Get_library_version says; "MPI" where that has no name.
std::string mpi_word(const std::string& version);

/// Launcher and MPI library of the running session, "srun, OpenMPI-4.1.4"; empty where MPI is not
/// initialised.
std::string running_mpi();

}  // namespace fedhpc
