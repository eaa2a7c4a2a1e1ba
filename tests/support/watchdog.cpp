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

// How long a rank lets the one that it asked to speak print its message and end the job.
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
    if (Clock::now() > deadline || asked_to_speak(own.place)) {
      receive_notes(arrivals);  // one that is older than the question
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
      report = unpack(receive_text(status));
    }
  }
}

// The text of a message that a probe found.
std::string Watchdog::receive_text(const MPI_Status& found) const {
  int num_bytes = 0;
  MPI_Get_count(&found, MPI_CHAR, &num_bytes);
  std::string text(static_cast<std::size_t>(num_bytes), '\0');
  MPI_Recv(text.data(), num_bytes, MPI_CHAR, found.MPI_SOURCE, found.MPI_TAG, comm_,
           MPI_STATUS_IGNORE);
  return text;
}

// One message is enough: the lowest rank that arrived speaks. The deadline of another rank may pass
// earlier, so that rank asks it to; should no end come, that rank speaks too.
void Watchdog::end_job(const Arrivals& arrivals) const {
  const auto first = std::find_if(arrivals.begin(), arrivals.end(),
                                  [](const auto& report) { return report.has_value(); });
  const int speaker = static_cast<int>(first - arrivals.begin());
  if (speaker != rank_) {
    let_speak(speaker, arrivals[static_cast<std::size_t>(rank_)]->place);
  }
  const std::string message = describe_arrivals(arrivals);
  std::fwrite(message.data(), 1, message.size(), stderr);
  std::fflush(stderr);
  MPI_Abort(comm_, 1);
  std::_Exit(1);
}

// Whether another rank, in vain at the same place, asked this one to end the job. A question from
// another place came too late: the ranks did meet there after all.
bool Watchdog::asked_to_speak(const std::string& place) const {
  int asked = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, kSpeakerTag, comm_, &asked, &status);
  return asked != 0 && receive_text(status) == place;
}

// Asks `speaker` to end the job from `place` and gives it the time to do so. Stays inside MPI: the
// speaker may still wait for this rank's report to arrive whole.
void Watchdog::let_speak(int speaker, const std::string& place) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(place.data(), static_cast<int>(place.size()), MPI_CHAR, speaker, kSpeakerTag, comm_,
            &request);
  for (const auto end = Clock::now() + kSpeakerTime; Clock::now() < end;) {
    int there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(kLongestPause);
  }
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
