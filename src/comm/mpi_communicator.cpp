#include "comm/mpi_communicator.hpp"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>

#include "comm/deadline.hpp"

namespace fedhpc {

MpiCommunicator::MpiCommunicator(CommHandle comm, TimedWait wait)
    : comm_(std::move(comm)), wait_(std::move(wait)) {
  check_mpi(MPI_Comm_set_errhandler(comm_.handle(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_.handle(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.handle(), &size_), "MPI_Comm_size");
  const CommHandle on_this_host = neighbours();
  int count = 0;
  check_mpi(MPI_Comm_size(on_this_host.handle(), &count), "MPI_Comm_size");
  spans_hosts_ = count < size_;
}

CommHandle MpiCommunicator::neighbours() const {
  MPI_Comm neighbours = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(comm_.handle(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours),
      "MPI_Comm_split_type");
  return CommHandle(neighbours);
}

CommHandle MpiCommunicator::neighbours_in_time() {
  barrier();
  const Deadline deadline(wait_.timeout_seconds(), "MPI_Comm_split_type");
  return neighbours();
}

void MpiCommunicator::wait(MPI_Request request, Call what) const {
  wait_.wait_until(
      [&] {
        int done = 0;
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
        return done != 0;
      },
      what, traffic().collectives);
}

void MpiCommunicator::in_pieces(Tensor& values, Call what, const Begin& begin) {
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

void MpiCommunicator::reduce(Tensor& values, MPI_Op operation, Call what) {
  // In place Open MPI 4.1 goes up a tree to one rank and back, whose link all values pass 2
  // log2(ranks) times; from a copy, where that is worth it, round a ring: 2 (P - 1)/P times.
  constexpr std::int64_t kFewValues = 8192;
  const bool from_copy = spans_hosts_ && values.numel() > kFewValues;
  const Tensor copy = from_copy ? values.clone() : Tensor();
  in_pieces(values, what, [&](void* data, int length, MPI_Datatype type, MPI_Request* request) {
    const void* own = MPI_IN_PLACE;
    if (from_copy) {
      const auto first = static_cast<char*>(data) - static_cast<char*>(values.data_ptr());
      own = static_cast<const char*>(copy.const_data_ptr()) + first;
    }
    return MPI_Iallreduce(own, data, length, type, operation, comm_.handle(), request);
  });
}

void MpiCommunicator::sum_(Tensor& values) { reduce(values, MPI_SUM, Call::Sum); }

void MpiCommunicator::max_(Tensor& values) { reduce(values, MPI_MAX, Call::Maximum); }

void MpiCommunicator::broadcast_(Tensor& values, int root) {
  in_pieces(values, Call::Broadcast,
            [&](void* data, int length, MPI_Datatype type, MPI_Request* request) {
              return MPI_Ibcast(data, length, type, root, comm_.handle(), request);
            });
}

std::vector<std::string> MpiCommunicator::all_texts(const std::string& text) {
  const int length = to_count(static_cast<std::int64_t>(text.size()));
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_.handle(), &request),
      Call::Texts);
  wait(request, Call::Texts);
  std::vector<int> offsets(lengths.size(), 0);
  std::partial_sum(lengths.begin(), lengths.end() - 1, offsets.begin() + 1);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
  check_mpi(MPI_Iallgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(),
                            offsets.data(), MPI_CHAR, comm_.handle(), &request),
            Call::Texts);
  wait(request, Call::Texts);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  }
  return texts;
}

void MpiCommunicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_.handle(), &request), Call::Barrier);
  wait(request, Call::Barrier);
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour) { return part(colour); }

std::unique_ptr<MpiCommunicator> MpiCommunicator::part(int colour) {
  barrier();  // MPI_Comm_split has no deadline: it begins once everybody is there
  const Deadline deadline(wait_.timeout_seconds(), "MPI_Comm_split");
  MPI_Comm part = MPI_COMM_NULL;
  const int mpi_colour = colour == kNoPart ? MPI_UNDEFINED : colour;
  check_mpi(MPI_Comm_split(comm_.handle(), mpi_colour, rank_, &part), "MPI_Comm_split");
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(CommHandle(part), wait_);
}

}  // namespace fedhpc
