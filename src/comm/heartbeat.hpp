#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/mpi_support.hpp"

namespace fedhpc {

/// Which ranks still go on. Every rank counts its signs of life and its progress (blocks trained,
/// collectives ended). Both travel as small messages to the ranks 1, 2, 4, ... places away on
/// either side, which pass on what they know: each rank has 2 log2(ranks) partners, and the news
/// goes round a rank that is stuck. A rank in a long computation tells the others whenever it calls
/// `progress`; one that waits does so from `listen`. Never blocks but in the constructor and, for a
/// few seconds at most, in the destructor.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  /// Collective over `world`. `timeout_seconds`: how long ranks wait for each other; messages are
  /// sent every twentieth of it, at least every second.
  Heartbeat(MPI_Comm world, double timeout_seconds);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void progress();  ///< this rank has got on with its work
  void listen();    ///< takes in what others sent, and shows that this rank lives
  /// When this rank last heard that any other has got on.
  Clock::time_point last_progress() const { return last_progress_; }
  /// "rank 2 on node7 gives no sign of life": who has been silent for half the time-out.
  std::string suspects() const;

 private:
  /// One rank we exchange messages with; the buffers belong to the requests.
  struct Partner {
    int rank = 0;
    std::vector<std::int64_t> outgoing;
    std::vector<std::int64_t> incoming;
    MPI_Request send = MPI_REQUEST_NULL;
    MPI_Request receive = MPI_REQUEST_NULL;
    bool said_goodbye = false;
  };

  void exchange_if_due();
  void receive();
  void take(const std::vector<std::int64_t>& news);
  void begin_receive(Partner& partner) const;
  bool exchange_goodbyes();

  CommHandle comm_;
  int rank_ = 0;
  int size_ = 1;
  int uncaught_;
  std::vector<std::string> hosts_;
  std::chrono::duration<double> timeout_;
  std::chrono::duration<double> period_;
  std::vector<Partner> partners_;
  std::vector<std::int64_t> known_;      // [2 N]: signs of life, then progress, of every rank
  std::vector<Clock::time_point> seen_;  // [N] when the last new sign of life arrived
  Clock::time_point last_progress_;
  Clock::time_point sent_;
};

}  // namespace fedhpc
