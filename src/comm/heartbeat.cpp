#include "comm/heartbeat.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <thread>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

namespace fedhpc {

namespace {

constexpr int kNews = 1;
constexpr int kGoodbye = 2;
constexpr double kLongestPeriod = 1;       // s
constexpr double kPeriodsPerTimeout = 20;  // news needs a few messages to reach everybody
constexpr double kGoodbyeSeconds = 5;
constexpr std::size_t kHostLength = 64;

CommHandle duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return CommHandle(copy);
}

std::vector<std::string> all_hosts(MPI_Comm comm, int size) {
  std::array<char, kHostLength> mine{};
  std::strncpy(mine.data(), host_name().c_str(), mine.size() - 1);
  std::vector<char> all(kHostLength * static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(mine.data(), static_cast<int>(kHostLength), MPI_CHAR, all.data(),
                          static_cast<int>(kHostLength), MPI_CHAR, comm),
            "MPI_Allgather");
  std::vector<std::string> hosts;
  for (int r = 0; r < size; ++r) {
    hosts.emplace_back(all.data() + kHostLength * static_cast<std::size_t>(r));
  }
  return hosts;
}

/// The ranks 1, 2, 4, ... places away, both ways.
std::set<int> partners_of(int rank, int size) {
  std::set<int> partners;
  for (int step = 1; step < size; step *= 2) {
    partners.insert((rank + step) % size);
    partners.insert((rank - step + size) % size);
  }
  partners.erase(rank);
  return partners;
}

template <typename T>
int bytes(const std::vector<T>& values) {
  return to_count(static_cast<std::int64_t>(values.size() * sizeof(T)));
}

bool is_done(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "a heartbeat");
  return done != 0;
}

}  // namespace

Heartbeat::Heartbeat(MPI_Comm world, double timeout_seconds)
    : comm_(duplicate(world)),
      uncaught_(std::uncaught_exceptions()),
      timeout_(timeout_seconds),
      period_(std::min(kLongestPeriod, timeout_seconds / kPeriodsPerTimeout)),
      last_progress_(Clock::now()),
      sent_(last_progress_) {
  check_mpi(MPI_Comm_rank(comm_.handle(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.handle(), &size_), "MPI_Comm_size");
  hosts_ = all_hosts(comm_.handle(), size_);
  known_.resize(static_cast<std::size_t>(size_));
  seen_.assign(static_cast<std::size_t>(size_), last_progress_);
  for (const int rank : partners_of(rank_, size_)) {
    Partner partner;
    partner.rank = rank;
    partner.outgoing.resize(known_.size());
    partner.incoming.resize(known_.size());
    partners_.push_back(std::move(partner));
  }
  for (Partner& partner : partners_) begin_receive(partner);
}

Heartbeat::~Heartbeat() {
  // The communicator may go only once nothing is on its way any more: its number is used again. A
  // rank that leaves by an exception does not wait for goodbyes, and leaves cleaning up to the end
  // of MPI.
  bool quiet = false;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && std::uncaught_exceptions() == uncaught_) {
    try {
      quiet = exchange_goodbyes();
    } catch (const std::exception&) {
      // MPI itself has failed; whoever uses it next says so.
    }
  }
  if (quiet || partners_.empty()) return;
  for (Partner& partner : partners_) {
    if (finalized == 0 && partner.receive != MPI_REQUEST_NULL) {
      MPI_Cancel(&partner.receive);
      MPI_Wait(&partner.receive, MPI_STATUS_IGNORE);
    }
  }
  comm_.abandon();
  // A message still on its way reads its buffer until the process ends.
  static_cast<void>(new std::vector<Partner>(std::move(partners_)));
}

void Heartbeat::begin_receive(Partner& partner) const {
  check_mpi(MPI_Irecv(partner.incoming.data(), bytes(partner.incoming), MPI_BYTE, partner.rank,
                      MPI_ANY_TAG, comm_.handle(), &partner.receive),
            "a heartbeat");
}

void Heartbeat::progress() {
  ++own().progress;
  exchange_if_due();
}

void Heartbeat::listen() {
  receive();
  exchange_if_due();
}

void Heartbeat::exchange_if_due() {
  const auto now = Clock::now();
  if (now - sent_ < period_) return;
  sent_ = now;
  receive();
  ++own().alive;
  for (Partner& partner : partners_) {
    // A partner that does not take its last message gets no further one.
    if (!is_done(partner.send)) continue;
    partner.outgoing = known_;
    check_mpi(MPI_Isend(partner.outgoing.data(), bytes(partner.outgoing), MPI_BYTE, partner.rank,
                        kNews, comm_.handle(), &partner.send),
              "a heartbeat");
  }
}

void Heartbeat::receive() {
  for (Partner& partner : partners_) {
    while (!partner.said_goodbye) {
      int done = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&partner.receive, &done, &status), "a heartbeat");
      if (done == 0) break;
      if (status.MPI_TAG == kGoodbye) {
        partner.said_goodbye = true;
        break;
      }
      take(partner.incoming);
      begin_receive(partner);
    }
  }
}

void Heartbeat::take(const std::vector<News>& news) {
  const auto now = Clock::now();
  for (std::size_t r = 0; r < news.size(); ++r) {
    if (static_cast<int>(r) == rank_ || news[r].alive <= known_[r].alive) continue;
    if (news[r].progress > known_[r].progress) last_progress_ = now;
    known_[r] = news[r];
    seen_[r] = now;
  }
}

bool Heartbeat::exchange_goodbyes() {
  const auto begin = Clock::now();
  const auto in_time = [&] {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return Clock::now() - begin < std::chrono::duration<double>(kGoodbyeSeconds);
  };
  for (Partner& partner : partners_) {
    while (!is_done(partner.send)) {
      receive();
      if (!in_time()) return false;
    }
    check_mpi(
        MPI_Isend(nullptr, 0, MPI_BYTE, partner.rank, kGoodbye, comm_.handle(), &partner.send),
        "a heartbeat");
  }
  for (Partner& partner : partners_) {
    while (!partner.said_goodbye || !is_done(partner.send)) {
      receive();
      if (!in_time()) return false;
    }
  }
  return true;
}

std::string Heartbeat::said_of(int rank, Number number) const {
  const auto r = static_cast<std::size_t>(rank);
  const News& news = known_[r];
  const auto verb = [&](const char* of_one, const char* of_several) {
    return number == Number::One ? of_one : of_several;
  };
  const std::string place = text(news.place);
  if (rank != rank_ && Clock::now() - seen_[r] > timeout_ / 2) {
    return concat(verb("gives", "give"), " no sign of life (last heard of: ", place, ")");
  }
  if (news.call == Call::None) return concat(verb("is ", "are "), place);
  return concat(verb("waits", "wait"), " in ", name(news.call), " (collective ", news.number, "), ",
                place);
}

std::string Heartbeat::story() const {
  std::map<std::string, std::vector<int>> told;  // who is where; silent ranks come first
  for (int r = 0; r < size_; ++r) told[said_of(r, Number::One)].push_back(r);
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> clauses;
  for (const auto& [said, ranks] : told) {
    if (clauses.size() == kNamed) {
      clauses.push_back(concat(told.size() - kNamed, " more places"));
      break;
    }
    std::vector<std::string> who;
    for (std::size_t i = 0; i < std::min(kNamed, ranks.size()); ++i) {
      who.push_back(concat("rank ", ranks[i], " on ", hosts_[static_cast<std::size_t>(ranks[i])]));
    }
    std::string names = join(who);
    if (ranks.size() > kNamed) names += concat(" and ", ranks.size() - kNamed, " more");
    const Number number = ranks.size() == 1 ? Number::One : Number::Several;
    clauses.push_back(concat(names, " ", said_of(ranks.front(), number)));
  }
  return join(clauses, "; ");
}

}  // namespace fedhpc
