#include <algorithm>

#include <ATen/ops/empty.h>

#include "comm/mpi_communicator.hpp"

// Rows that travel between pairs of ranks, as many as the sender has.

namespace fedhpc {

void MpiCommunicator::exchange(const std::vector<Message>& outgoing,
                               const std::vector<Message>& incoming, Call what) const {
  std::vector<MPI_Request> requests;
  const auto begin = [&](const Message& message, auto&& start) {
    const MPI_Datatype type = datatype(message.values);
    const auto size = static_cast<std::int64_t>(message.values.itemsize());
    auto* bytes = static_cast<char*>(message.values.data_ptr());
    // Pieces of one pair of ranks arrive in the order in which they were sent.
    for (std::int64_t first = 0; first < message.values.numel(); first += kPiece) {
      const int length = to_count(std::min(kPiece, message.values.numel() - first));
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(start(bytes + first * size, length, type, message.peer, /*tag=*/0, comm_.handle(),
                      &requests.back()),
                what);
    }
  };
  for (const Message& message : incoming) begin(message, MPI_Irecv);
  for (const Message& message : outgoing) begin(message, MPI_Isend);
  for (const MPI_Request request : requests) wait(request, what);
}

std::vector<Tensor> MpiCommunicator::exchange_rows(const std::vector<Message>& outgoing,
                                                   const std::vector<int>& senders,
                                                   const Tensor& like, Call what) const {
  // First the number of rows and of values, which the receiver checks against its own shape.
  const auto numbers = [] { return at::empty({2}, at::kLong); };
  std::vector<Message> sizes_out;
  for (const Message& message : outgoing) {
    Tensor sizes = numbers();
    sizes.data_ptr<std::int64_t>()[0] = message.values.size(0);
    sizes.data_ptr<std::int64_t>()[1] = message.values.numel();
    sizes_out.push_back({message.peer, sizes});
  }
  std::vector<Message> sizes_in;
  for (const int sender : senders) sizes_in.push_back({sender, numbers()});
  exchange(sizes_out, sizes_in, what);

  std::vector<Message> incoming;
  std::vector<Tensor> received;
  std::vector<std::int64_t> shape = like.sizes().vec();
  for (const auto& [sender, sizes] : sizes_in) {
    shape.front() = sizes.const_data_ptr<std::int64_t>()[0];
    received.push_back(at::empty(shape, like.options()));
    require(received.back().numel() == sizes.const_data_ptr<std::int64_t>()[1],
            "ranks exchange rows of one shape");
    incoming.push_back({sender, received.back()});
  }
  exchange(outgoing, incoming, what);
  return received;
}

Tensor MpiCommunicator::gather(const Tensor& rows, int root) {
  return gather_rows(
      rows, [root](int rank) { return rank == root; }, Call::Gather);
}

Tensor MpiCommunicator::all_gather(const Tensor& rows) {
  return gather_rows(
      rows, [](int) { return true; }, Call::GatherOnAll);
}

Tensor MpiCommunicator::gather_rows(const Tensor& rows, const std::function<bool(int)>& receives,
                                    Call what) {
  datatype(rows);
  count(rows);
  struct Size {
    std::int64_t rows;
    std::int64_t values;
  };
  const Size mine{rows.size(0), rows.numel()};
  std::vector<Size> sizes(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Iallgather(&mine, 2, MPI_INT64_T, sizes.data(), 2, MPI_INT64_T, comm_.handle(), &request),
      what);
  wait(request, what);
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape.front() = 0;
  if (receives(rank_)) {
    for (const Size& size : sizes) shape.front() += size.rows;
  }
  Tensor all = at::empty(shape, rows.options());
  // Received where they belong. The counts of MPI's own collectives end at 2^31 values in all.
  std::vector<Message> outgoing;
  std::vector<Message> incoming;
  std::int64_t first = 0;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && receives(r)) outgoing.push_back({r, rows});
    if (!receives(rank_)) continue;
    const Size& size = sizes[static_cast<std::size_t>(r)];
    const Tensor place = all.narrow(0, first, size.rows);
    require(place.numel() == size.values, "ranks exchange rows of one shape");
    first += size.rows;
    if (r == rank_) {
      place.copy_(rows);
    } else {
      incoming.push_back({r, place});
    }
  }
  exchange(outgoing, incoming, what);
  return all;
}

std::vector<Tensor> MpiCommunicator::all_to_all(const std::vector<Tensor>& parts) {
  require(static_cast<int>(parts.size()) == size_, "all_to_all takes one part per rank");
  for (const Tensor& part : parts) datatype(part);
  count(parts);
  std::vector<Message> outgoing;
  std::vector<int> senders;
  // Rank r begins with rank r + 1, so that not all of them write to rank 0 first.
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    outgoing.push_back({peer, parts[static_cast<std::size_t>(peer)]});
    senders.push_back(peer);
  }
  const Tensor& own = parts[static_cast<std::size_t>(rank_)];
  const std::vector<Tensor> received = exchange_rows(outgoing, senders, own, Call::AllToAll);
  std::vector<Tensor> in_order(parts.size());
  in_order[static_cast<std::size_t>(rank_)] = own;
  for (std::size_t i = 0; i < senders.size(); ++i) {
    in_order[static_cast<std::size_t>(senders[i])] = received[i];
  }
  return in_order;
}

}  // namespace fedhpc
