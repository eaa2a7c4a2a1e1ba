#pragma once

#include <memory>
#include <string>

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

constexpr double kStartTimeout = 600;  // s, where no configuration says otherwise

/// Holds MPI from start to end of the process. Initialises MPI only when a launcher started this
/// process (or with Launch::Always), so that a single process needs no MPI daemon. Finalises it
/// unless an exception is unwinding, since MPI_Finalize would wait for ranks that never come.
class Session {
 public:
  enum class Launch { Detect, Always };

  /// Tells the log who this process is. `timeout_seconds`: how long this rank waits for the others
  /// to start.
  Session(int* argc, char*** argv, Launch launch = Launch::Detect,
          double timeout_seconds = kStartTimeout);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Says `fedhpc: error: rank R on HOST: message` and ends all ranks with exit code 1.
  [[noreturn]] void abort(const std::string& message) const;

 private:
  bool active_ = false;
  int rank_ = 0;
  int size_ = 1;
  int uncaught_ = 0;
};

/// Returns all ranks of the running MPI session, or one process alone when MPI is not initialised.
/// Its collectives wait for other ranks for `timeout_seconds`, and so does this call.
std::unique_ptr<Communicator> world_communicator(double timeout_seconds);

/// The name of this host.
std::string host_name();

/// The version of the MPI library in one word, e.g. "OpenMPI-4.1.4".
std::string mpi_version();

}  // namespace fedhpc
