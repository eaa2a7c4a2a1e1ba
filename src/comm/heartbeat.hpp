#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <mpi.h>

#include "fedhpc/comm/place.hpp"

#include "comm/call.hpp"
#include "comm/mpi_support.hpp"

namespace fedhpc {

/// Tells every rank which ranks still make progress, and their places. Every rank counts its signs
/// of life and its progress (blocks trained, collectives ended). Both travel with its place and the
/// collective it waits in as small messages to the ranks 1, 2, 4, ... places away on either side.
/// Those pass on what they know: each rank has 2 log2(ranks) partners, and the news goes round a
/// rank that is stuck. A rank in a long computation tells the others whenever it calls `progress`;
/// one that waits does so from `listen`. Never blocks but in the constructor and, for a few seconds
/// at most, in the destructor.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  /// Collective over `world`. `timeout_seconds`: how long ranks wait for each other; messages are
  /// sent every twentieth of it, at least every second.
  Heartbeat(MPI_Comm world, double timeout_seconds);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void progress();  ///< this rank has made progress
  void listen();    ///< takes in what others sent, and shows that this rank lives
  /// The time at which this rank last heard of progress of any other.
  Clock::time_point last_progress() const { return last_progress_; }
  /// This rank's place; the others hear of it with the next message.
  Place& place() { return own().place; }
  /// Notes that this rank waits in the `number`-th collective of a communicator; None: it works.
  void waits(Call call, std::int64_t number) {
    own().call = call;
    own().number = number;
  }
  /// Adds a wait that is over to this rank's.
  void add_wait(std::chrono::duration<double> wait) { seconds_waited_ += wait.count(); }
  double seconds_waited() const { return seconds_waited_; }
  /// Lists the ranks silent for half the time-out, then all others: "rank 2 on n7 gives no sign of
  /// life (last heard of: training client 41 in round 17); rank 0 on n5 waits in a sum over ranks
  /// (collective 311), taking a mean in round 17".
  std::string story() const;

 private:
  /// This rank's news of one rank.
  struct News {
    std::int64_t alive = 0;     // signs of life
    std::int64_t progress = 0;  // steps of progress
    Place place;
    Call call = Call::None;
    std::int64_t number = 0;  // of the collective in its communicator
  };

  /// One rank that exchanges messages with this one; the buffers belong to the requests.
  struct Partner {
    int rank = 0;
    std::vector<News> outgoing;
    std::vector<News> incoming;
    MPI_Request send = MPI_REQUEST_NULL;
    MPI_Request receive = MPI_REQUEST_NULL;
    bool said_goodbye = false;
  };

  void exchange_if_due();
  void receive();
  void take(const std::vector<News>& news);
  News& own() { return known_[static_cast<std::size_t>(rank_)]; }
  enum class Number { One, Several };
  /// Says what is known of rank `rank` without naming it, so that ranks with the same news share a
  /// line.
  std::string said_of(int rank, Number number) const;
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
  std::vector<News> known_;              // [N]
  std::vector<Clock::time_point> seen_;  // [N] when the last new sign of life arrived
  Clock::time_point last_progress_;
  Clock::time_point sent_;
  double seconds_waited_ = 0;
};

}  // namespace fedhpc
