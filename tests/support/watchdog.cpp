#include "support/watchdog.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace fedhpc::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kReportTag = 1;
constexpr int kSpeakerTag = 2;
constexpr double kDefaultLimit = 60.0;  // s

// Tests run more ranks than cores: a waiting rank leaves its core to those that still work.
constexpr microseconds kShortestPause{200};
constexpr microseconds kLongestPause{1000};

// Ranks that waited equally long speak in the order of their rank, this far apart.
constexpr milliseconds kTurn{100};
constexpr int kSpeakerProbes = 3;
// How long a rank lets another one that announced its message print it and end the job.
constexpr milliseconds kSpeakerTime{10'000};

bool at_one_place(const std::vector<std::optional<RankReport>>& arrivals) {
  const auto first = std::find_if(arrivals.begin(), arrivals.end(),
                                  [](const auto& report) { return report.has_value(); });
  return std::all_of(first, arrivals.end(), [&](const auto& report) {
    return !report || report->place == (*first)->place;
  });
}

}  // namespace

// No MPI return code is checked here: the error handler of MPI_COMM_WORLD, which ends the job, is
// inherited by the duplicate.
Watchdog::Watchdog(MPI_Comm comm, Seconds limit) : limit_(limit) {
  MPI_Comm_dup(comm, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

Watchdog::~Watchdog() { MPI_Comm_free(&comm_); }

std::vector<RankReport> Watchdog::meet(const RankReport& own) {
  Arrivals arrivals(static_cast<std::size_t>(size_));
  arrivals[static_cast<std::size_t>(rank_)] = own;
  const std::string note = pack(own);
  std::vector<MPI_Request> sends = send_to_others(note);

  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit_);
  auto pause = kShortestPause;
  while (true) {
    receive_notes(arrivals);
    int sent = 0;
    MPI_Testall(static_cast<int>(sends.size()), sends.data(), &sent, MPI_STATUSES_IGNORE);
    const bool complete = std::all_of(arrivals.begin(), arrivals.end(),
                                      [](const auto& report) { return report.has_value(); });
    if (complete && sent != 0) {
      break;
    }
    if (Clock::now() > deadline) {
      end_job(arrivals);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  if (!at_one_place(arrivals)) {
    end_job(arrivals);
  }

  std::vector<RankReport> reports;
  for (auto& report : arrivals) {
    reports.push_back(std::move(*report));
  }
  return reports;
}

int Watchdog::max_over_ranks(int value) const {
  int largest = value;
  MPI_Allreduce(&value, &largest, 1, MPI_INT, MPI_MAX, comm_);
  return largest;
}

std::vector<MPI_Request> Watchdog::send_to_others(const std::string& note) const {
  std::vector<MPI_Request> sends;
  for (int to = 0; to < size_; ++to) {
    if (to != rank_) {
      MPI_Isend(note.data(), static_cast<int>(note.size()), MPI_CHAR, to, kReportTag, comm_,
                &sends.emplace_back(MPI_REQUEST_NULL));
    }
  }
  return sends;
}

// Probes only ranks that have not arrived: one that is already on its way to the next meeting point
// may have sent its next report, which has to stay in the queue.
void Watchdog::receive_notes(Arrivals& arrivals) const {
  for (int from = 0; from < size_; ++from) {
    auto& report = arrivals[static_cast<std::size_t>(from)];
    int there = 0;
    MPI_Status status;
    if (!report) {
      MPI_Iprobe(from, kReportTag, comm_, &there, &status);
    }
    if (there != 0) {
      int num_bytes = 0;
      MPI_Get_count(&status, MPI_CHAR, &num_bytes);
      std::string note(static_cast<std::size_t>(num_bytes), '\0');
      MPI_Recv(note.data(), num_bytes, MPI_CHAR, from, kReportTag, comm_, MPI_STATUS_IGNORE);
      report = unpack(note);
    }
  }
}

// Every rank that arrived gets here at about the same time, and one message is enough.
void Watchdog::end_job(const Arrivals& arrivals) const {
  if (!wait_for_speaker(arrivals)) {
    for (int to = 0; to < size_; ++to) {
      if (to != rank_ && arrivals[static_cast<std::size_t>(to)]) {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(nullptr, 0, MPI_CHAR, to, kSpeakerTag, comm_, &request);
        MPI_Request_free(&request);
      }
    }
    const std::string message = describe_arrivals(arrivals);
    std::fwrite(message.data(), 1, message.size(), stderr);
    std::fflush(stderr);
  }
  MPI_Abort(comm_, 1);
  std::_Exit(1);
}

// Waits for this rank's turn to speak; true if another rank spoke and had the time to end the job.
bool Watchdog::wait_for_speaker(const Arrivals& arrivals) const {
  const auto num_before = std::count_if(arrivals.begin(), arrivals.begin() + rank_,
                                        [](const auto& report) { return report.has_value(); });
  const auto turn = Clock::now() + num_before * kTurn;
  // Often: one probe after the pause may only start the progress that brings the note in.
  for (int probe = 0; probe < kSpeakerProbes || Clock::now() < turn; ++probe) {
    int spoken = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kSpeakerTag, comm_, &spoken, MPI_STATUS_IGNORE);
    if (spoken != 0) {
      std::this_thread::sleep_for(kSpeakerTime);
      return true;
    }
    std::this_thread::sleep_for(kLongestPause);
  }
  return false;
}

std::string Watchdog::describe_arrivals(const Arrivals& arrivals) const {
  const std::string& place = arrivals[static_cast<std::size_t>(rank_)]->place;
  const bool in_step = at_one_place(arrivals);
  std::ostringstream out;
  if (in_step) {
    out << "\n[watchdog] " << place << " was not reached by every rank within " << limit_.count()
        << " s (FEDHPC_TEST_WATCHDOG)\n";
  } else {
    out << "\n[watchdog] the ranks do not run the same tests in the same order\n";
  }
  for (int rank = 0; rank < size_; ++rank) {
    out << "[watchdog] rank " << rank << " of " << size_ << ": ";
    const auto& report = arrivals[static_cast<std::size_t>(rank)];
    if (!report) {
      out << "has not arrived, is still waiting or working inside\n";
      continue;
    }
    out << "arrived" << (in_step ? "" : " at " + report->place) << ", "
        << (!report->failures.empty() ? "failed"
            : report->skipped         ? "skipped"
                                      : "without a failure")
        << "\n";
    for (const Failure& failure : report->failures) {
      out << "    " << describe(failure) << "\n";
    }
  }
  out << "[watchdog] rank " << rank_ << " ends the job with exit code 1\n";
  return out.str();
}

Watchdog::Seconds watchdog_limit(MPI_Comm comm) {
  constexpr double kInvalid = -1.0;
  const char* text = std::getenv("FEDHPC_TEST_WATCHDOG");
  double limit = kDefaultLimit;
  if (text != nullptr) {
    char* end = nullptr;
    limit = std::strtod(text, &end);
    if (end == text || *end != '\0' || !std::isfinite(limit) || limit <= 0) {
      limit = kInvalid;
    }
  }
  MPI_Bcast(&limit, 1, MPI_DOUBLE, 0, comm);
  if (limit == kInvalid) {
    throw std::invalid_argument("FEDHPC_TEST_WATCHDOG=" + std::string(text ? text : "") +
                                ": give the limit in seconds, a number above 0");
  }
  return Watchdog::Seconds(limit);
}

}  // namespace fedhpc::testing
