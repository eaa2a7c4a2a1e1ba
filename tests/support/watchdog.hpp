#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "support/rank_report.hpp"

namespace fedhpc::testing {

// The meeting points of the ranks of one test job, with a deadline.
//
// A rank that leaves a test early would wait for ever for one that is still inside a collective of
// that test. So an arriving rank sends its report to every other rank without asking for their
// help (eager or pending sends on a communicator of its own), then polls. All ranks present: the
// reports are the result. Deadline passed: each rank that did arrive knows by itself who is missing
// and what the others reported, whichever rank is stuck; one of them prints that and ends the job.
//
// All calls are made by the calling thread: MPI_THREAD_FUNNELED is enough.
class Watchdog {
 public:
  using Seconds = std::chrono::duration<double>;

  // Duplicates `comm` (collective). `limit` counts from the arrival of each rank.
  Watchdog(MPI_Comm comm, Seconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Waits for every rank and returns their reports, by rank. Ends the job with exit code 1 when one
  // does not come in time, or when the ranks meet at different places. Returns `own` on one rank.
  std::vector<RankReport> meet(const RankReport& own);

  // Largest value over the ranks; collective and unwatched, so only right after `meet`.
  int max_over_ranks(int value) const;

 private:
  using Arrivals = std::vector<std::optional<RankReport>>;  // by rank; empty: has not arrived

  std::vector<MPI_Request> send_to_others(const std::string& note) const;
  void receive_notes(Arrivals& arrivals) const;
  [[noreturn]] void end_job(const Arrivals& arrivals) const;
  bool asked_to_speak(const std::string& place) const;
  void let_speak(int speaker, const std::string& place) const;
  std::string receive_text(const MPI_Status& found) const;
  std::string describe_arrivals(const Arrivals& arrivals) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  Seconds limit_;
};

// The limit in FEDHPC_TEST_WATCHDOG (seconds, above 0) or 60 s, as rank 0 sees it. Collective;
// throws std::invalid_argument on all ranks if the value is none.
Watchdog::Seconds watchdog_limit(MPI_Comm comm);

}  // namespace fedhpc::testing
