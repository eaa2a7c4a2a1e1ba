#include "comm/nccl_communicator.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>

#include "comm/fail_together.hpp"

namespace fedhpc {

namespace {

using Status = GpuLibrary::Status;

GpuLibrary::Type type_of(const Tensor& values) {
  require(values.is_contiguous(), "a collective takes contiguous tensors");
  switch (values.scalar_type()) {
    case at::kFloat:
      return GpuLibrary::Type::Float32;
    case at::kDouble:
      return GpuLibrary::Type::Float64;
    case at::kLong:
      return GpuLibrary::Type::Int64;
    default:
      break;
  }
  require(false, "a collective takes float32, float64 or int64");
  return {};
}

std::size_t count_of(const Tensor& values) { return static_cast<std::size_t>(values.numel()); }

}  // namespace

NcclCommunicator::Lane::Lane(GpuLibrary& owner) : library(owner), stream(owner.new_stream()) {
  filled = library.new_event();
  ended = library.new_event();
}

NcclCommunicator::Lane::~Lane() {
  library.free_event(ended);
  library.free_event(filled);
  library.free(stream);
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<MpiCommunicator> host, GpuLibrary& library)
    : host_(std::move(host)),
      library_(library),
      lane_(library),
      uncaught_(std::uncaught_exceptions()) {
  constexpr Call kWhat = Call::StartOfNccl;
  GpuLibrary::Id id{};
  std::string failure;
  if (rank() == 0 && library_.unique_id(id) == Status::Error) {
    failure = concat(name(kWhat), " failed: ", library_.error_text(comm_));
  }
  fail_together(*host_, failure);  // before anybody waits for the others
  const std::string told = host_->all_texts({id.begin(), id.end()}).front();
  std::copy(told.begin(), told.end(), id.begin());
  check(library_.init(comm_, size(), id, rank()), kWhat);
  settle(kWhat);
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<MpiCommunicator> host, GpuLibrary& library,
                                   GpuLibrary::Comm comm)
    : host_(std::move(host)),
      library_(library),
      lane_(library),
      comm_(comm),
      uncaught_(std::uncaught_exceptions()) {
  settle(Call::SplitOfNccl);
}

NcclCommunicator::~NcclCommunicator() {
  // Destroying waits for the other ranks, who may never come when an error is on its way.
  if (std::uncaught_exceptions() != uncaught_) give_up();
  if (comm_ != nullptr) library_.destroy(comm_);
}

void NcclCommunicator::give_up() noexcept {
  if (comm_ != nullptr) library_.abort(comm_);
  comm_ = nullptr;
}

void NcclCommunicator::check(Status status, Call what) {
  if (status != Status::Error) return;
  const std::string text = library_.error_text(comm_);
  give_up();
  throw Error(concat(name(what), " failed: ", text));
}

void NcclCommunicator::settle(Call what) {
  try {
    host_->timed_wait().wait_until(
        [&] {
          const Status status = library_.asynchronous_error(comm_);
          check(status, what);
          return status == Status::Success;
        },
        what, traffic().collectives);
  } catch (...) {
    give_up();
    throw;
  }
}

void NcclCommunicator::run(Call what, const std::function<void()>& enqueue) {
  if (comm_ == nullptr)
    throw Error(concat(name(what), " failed: NCCL was given up after an error"));
  try {
    library_.record(lane_.filled, library_.tensor_stream());
    library_.wait(lane_.stream, lane_.filled);
    enqueue();
    // A call that does not block may have enqueued nothing yet.
    settle(what);
    library_.record(lane_.ended, lane_.stream);
    host_->timed_wait().wait_until(
        [&] {
          check(library_.asynchronous_error(comm_), what);
          return library_.has_passed(lane_.ended);
        },
        what, traffic().collectives);
  } catch (...) {
    give_up();
    throw;
  }
}

void NcclCommunicator::reduce(Tensor& values, GpuLibrary::Reduction reduction, Call what) {
  count(values);
  const GpuLibrary::Type type = type_of(values);
  run(what, [&] {
    check(library_.all_reduce(values.data_ptr(), count_of(values), type, reduction, comm_,
                              lane_.stream),
          what);
  });
}

void NcclCommunicator::sum_(Tensor& values) {
  if (!library_.holds(values)) return host_->sum_(values);
  reduce(values, GpuLibrary::Reduction::Sum, Call::Sum);
}

void NcclCommunicator::max_(Tensor& values) {
  if (!library_.holds(values)) return host_->max_(values);
  reduce(values, GpuLibrary::Reduction::Max, Call::Maximum);
}

void NcclCommunicator::broadcast_(Tensor& values, int root) {
  if (!library_.holds(values)) return host_->broadcast_(values, root);
  constexpr Call kWhat = Call::Broadcast;
  count(values);
  const GpuLibrary::Type type = type_of(values);
  run(kWhat, [&] {
    check(library_.broadcast(values.data_ptr(), count_of(values), type, root, comm_, lane_.stream),
          kWhat);
  });
}

void NcclCommunicator::exchange(const std::vector<Message>& outgoing,
                                const std::vector<Message>& incoming, Call what) {
  // Before the group is open: an abort would be put off until it is closed.
  for (const Message& message : outgoing) type_of(message.rows);
  for (const Message& message : incoming) type_of(message.rows);
  run(what, [&] {
    // In one group: NCCL would let a sender wait for a receiver that has its own turn to send.
    check(library_.group_start(), what);
    for (const Message& message : outgoing) {
      if (message.rows.numel() == 0) continue;
      check(library_.send(message.rows.data_ptr(), count_of(message.rows), type_of(message.rows),
                          message.peer, comm_, lane_.stream),
            what);
    }
    for (const Message& message : incoming) {
      if (message.rows.numel() == 0) continue;
      check(library_.receive(message.rows.data_ptr(), count_of(message.rows), type_of(message.rows),
                             message.peer, comm_, lane_.stream),
            what);
    }
    check(library_.group_end(), what);
  });
}

std::vector<Tensor> NcclCommunicator::room_for(const std::vector<Tensor>& parts) {
  // Rows and values for each rank, from each rank.
  const auto ranks = static_cast<std::int64_t>(parts.size());
  const Tensor mine = at::empty({1, 2 * ranks}, at::kLong);
  auto* next = mine.data_ptr<std::int64_t>();
  for (const Tensor& part : parts) {
    *next++ = part.size(0);
    *next++ = part.numel();
  }
  const Tensor all = host_->all_gather(mine);
  std::vector<Tensor> room;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t* told = all.const_data_ptr<std::int64_t>() + 2 * (r * ranks + rank());
    const Tensor& like = parts[static_cast<std::size_t>(r)];
    std::vector<std::int64_t> shape = like.sizes().vec();
    shape.front() = told[0];
    room.push_back(at::empty(shape, like.options()));
    require(room.back().numel() == told[1], "ranks exchange rows of one shape");
  }
  return room;
}

Tensor NcclCommunicator::gather_rows(const Tensor& rows, const std::vector<bool>& receives,
                                     Call what) {
  count(rows);
  const Tensor none = rows.narrow(0, 0, 0);
  std::vector<Tensor> parts;
  for (const bool receiver : receives) parts.push_back(receiver ? rows : none);
  const std::vector<Tensor> room = room_for(parts);
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape.front() = 0;
  for (const Tensor& from : room) shape.front() += from.size(0);
  const Tensor all = at::empty(shape, rows.options());
  std::vector<Message> outgoing;
  std::vector<Message> incoming;
  std::int64_t first = 0;
  for (int r = 0; r < size(); ++r) {
    const std::int64_t count = room[static_cast<std::size_t>(r)].size(0);
    const Tensor place = all.narrow(0, first, count);
    first += count;
    if (r == rank()) {
      place.copy_(parts[static_cast<std::size_t>(r)]);
    } else {
      outgoing.push_back({r, parts[static_cast<std::size_t>(r)]});
      incoming.push_back({r, place});
    }
  }
  exchange(outgoing, incoming, what);
  return all;
}

Tensor NcclCommunicator::gather(const Tensor& rows, int root) {
  if (!library_.holds(rows)) return host_->gather(rows, root);
  std::vector<bool> receives(static_cast<std::size_t>(size()), false);
  receives[static_cast<std::size_t>(root)] = true;
  return gather_rows(rows, receives, Call::Gather);
}

Tensor NcclCommunicator::all_gather(const Tensor& rows) {
  if (!library_.holds(rows)) return host_->all_gather(rows);
  return gather_rows(rows, std::vector<bool>(static_cast<std::size_t>(size()), true),
                     Call::GatherOnAll);
}

std::vector<Tensor> NcclCommunicator::all_to_all(const std::vector<Tensor>& parts) {
  require(static_cast<int>(parts.size()) == size(), "all_to_all takes one part per rank");
  if (!library_.holds(parts.front())) return host_->all_to_all(parts);
  count(parts);
  std::vector<Tensor> received = room_for(parts);
  std::vector<Message> outgoing;
  std::vector<Message> incoming;
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (r == rank()) {
      received[at] = parts[at];
      continue;
    }
    outgoing.push_back({r, parts[at]});
    incoming.push_back({r, received[at]});
  }
  exchange(outgoing, incoming, Call::AllToAll);
  return received;
}

std::vector<std::string> NcclCommunicator::all_texts(const std::string& text) {
  return host_->all_texts(text);
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour) {
  constexpr Call kWhat = Call::SplitOfNccl;
  if (comm_ == nullptr)
    throw Error(concat(name(kWhat), " failed: NCCL was given up after an error"));
  std::unique_ptr<MpiCommunicator> host = host_->part(colour);
  const bool together = host && host->size() > 1;
  GpuLibrary::Comm part = nullptr;
  check(library_.split(part, comm_, together ? colour : kNoPart, rank()), kWhat);
  settle(kWhat);  // `part` has its value only now
  if (!host) return nullptr;
  if (!together) return alone_in(std::move(host));
  return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(host), library_, part));
}

}  // namespace fedhpc
