#include "comm/mpi_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <sched.h>
#include <thread>

#include <ATen/ops/empty.h>

#include "comm/heartbeat.hpp"

namespace fedhpc {

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(concat(what, " failed: ", std::string(text, static_cast<std::size_t>(length))));
}

MPI_Datatype datatype(const Tensor& values) {
  require(values.is_contiguous() && values.is_cpu(), "a collective takes contiguous CPU tensors");
  switch (values.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    default:
      break;
  }
  require(false, "a collective takes float32, float64 or int64");
  return MPI_DATATYPE_NULL;
}

int to_count(std::int64_t n) {
  require(n <= std::numeric_limits<int>::max(), "one MPI message holds fewer than 2^31 values");
  return static_cast<int>(n);
}

void CommHandle::reset() noexcept {
  if (comm_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

MpiCommunicator::MpiCommunicator(CommHandle comm, double timeout_seconds,
                                 std::shared_ptr<Heartbeat> heartbeat)
    : comm_(std::move(comm)), timeout_seconds_(timeout_seconds), heartbeat_(std::move(heartbeat)) {
  check_mpi(MPI_Comm_set_errhandler(comm_.handle(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_.handle(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.handle(), &size_), "MPI_Comm_size");
}

void MpiCommunicator::wait(MPI_Request request, const char* what) const {
  using Clock = Heartbeat::Clock;
  const auto begin = Clock::now();
  auto listened = begin;
  constexpr int kSpins = 256;  // some 20 us: a small message is through by then
  constexpr int kPollsPerYield =
      16;  // later on ranks that share a core get it, most polls stay cheap
  constexpr std::chrono::milliseconds kListening{10};
  for (std::int64_t poll = 0;; ++poll) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done != 0) break;
    if (poll < kSpins || poll % kPollsPerYield != 0) continue;
    const auto now = Clock::now();
    if (now - listened > kListening) {
      listened = now;
      heartbeat_->listen();
      const std::chrono::duration<double> still =
          now - std::max(begin, heartbeat_->last_progress());
      if (still.count() > timeout_seconds_) {
        throw Error(concat("no progress in ", what, " for ", timeout_seconds_,
                           " s: ", heartbeat_->suspects(), " (run.collective_timeout)"));
      }
    }
    // Long waits must not keep a core from the rank that is waited for.
    if (now - begin > std::chrono::milliseconds(50)) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } else {
      sched_yield();
    }
  }
  heartbeat_->progress();
}

void MpiCommunicator::beat() { heartbeat_->progress(); }

void MpiCommunicator::in_pieces(Tensor& values, const char* what, const Begin& begin) {
  const MPI_Datatype type = datatype(values);
  count(values);
  const auto size = static_cast<std::int64_t>(values.itemsize());
  auto* bytes = static_cast<char*>(values.data_ptr());
  for (std::int64_t first = 0; first < values.numel(); first += kPiece) {
    const int length = to_count(std::min(kPiece, values.numel() - first));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(begin(bytes + first * size, length, type, &request), what);
    wait(request, what);
  }
}

void MpiCommunicator::reduce(Tensor& values, MPI_Op operation, const char* what) {
  in_pieces(values, what, [&](void* data, int length, MPI_Datatype type, MPI_Request* request) {
    return MPI_Iallreduce(MPI_IN_PLACE, data, length, type, operation, comm_.handle(), request);
  });
}

void MpiCommunicator::sum_(Tensor& values) { reduce(values, MPI_SUM, "a sum over ranks"); }

void MpiCommunicator::max_(Tensor& values) { reduce(values, MPI_MAX, "a maximum over ranks"); }

void MpiCommunicator::broadcast_(Tensor& values, int root) {
  in_pieces(values, "a broadcast",
            [&](void* data, int length, MPI_Datatype type, MPI_Request* request) {
              return MPI_Ibcast(data, length, type, root, comm_.handle(), request);
            });
}

Tensor MpiCommunicator::gather(const Tensor& rows, int root) {
  const MPI_Datatype type = datatype(rows);
  count(rows);
  const int mine = to_count(rows.numel());
  std::vector<int> counts(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Igather(&mine, 1, MPI_INT, counts.data(), 1, MPI_INT, root, comm_.handle(), &request),
      "a gather");
  wait(request, "a gather");
  std::vector<int> offsets(counts.size(), 0);
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape.front() = 0;
  if (rank_ == root) {
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    to_count(total);
    std::partial_sum(counts.begin(), counts.end() - 1, offsets.begin() + 1);
    std::int64_t width = 1;
    for (std::size_t d = 1; d < shape.size(); ++d) width *= shape[d];
    shape.front() = width == 0 ? 0 : total / width;
  }
  Tensor all = at::empty(shape, rows.options());
  check_mpi(MPI_Igatherv(rows.data_ptr(), mine, type, all.data_ptr(), counts.data(), offsets.data(),
                         type, root, comm_.handle(), &request),
            "a gather");
  wait(request, "a gather");
  return all;
}

std::vector<std::string> MpiCommunicator::all_texts(const std::string& text) {
  const int length = to_count(static_cast<std::int64_t>(text.size()));
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_.handle(), &request),
      "an exchange of texts");
  wait(request, "an exchange of texts");
  std::vector<int> offsets(lengths.size(), 0);
  std::partial_sum(lengths.begin(), lengths.end() - 1, offsets.begin() + 1);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
  check_mpi(MPI_Iallgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(),
                            offsets.data(), MPI_CHAR, comm_.handle(), &request),
            "an exchange of texts");
  wait(request, "an exchange of texts");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  }
  return texts;
}

void MpiCommunicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_.handle(), &request), "a barrier");
  wait(request, "a barrier");
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour) {
  barrier();  // MPI_Comm_split has no deadline: it begins once everybody is there
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_.handle(), colour, rank_, &part), "MPI_Comm_split");
  return std::make_unique<MpiCommunicator>(CommHandle(part), timeout_seconds_, heartbeat_);
}

}  // namespace fedhpc
