#include "comm/fake_gpu_library.hpp"

#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

namespace {

MPI_Datatype mpi(GpuLibrary::Type type) {
  switch (type) {
    case GpuLibrary::Type::Float32:
      return MPI_FLOAT;
    case GpuLibrary::Type::Float64:
      return MPI_DOUBLE;
    case GpuLibrary::Type::Int64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

}  // namespace

void FakeGpuLibrary::add(Stream stream, Work work) {
  auto& queue = *static_cast<Queue*>(stream);
  queue.works.push_back(std::move(work));
  ++queue.added;
}

void FakeGpuLibrary::get_on(Queue& queue) {
  while (!queue.works.empty()) {
    Work& work = queue.works.front();
    if (!work.begun) work.begin();
    work.begun = true;
    if (!work.has_ended()) return;
    queue.works.pop_front();
    ++queue.ended;
  }
}

bool FakeGpuLibrary::passed(const Mark& mark) {
  if (mark.queue == nullptr) return true;
  get_on(*mark.queue);
  return mark.queue->ended >= mark.position;
}

void FakeGpuLibrary::enqueue(int looks, std::function<void()> work) {
  auto left = std::make_shared<int>(looks);
  add(&tensor_stream_, {.has_ended = [left, work = std::move(work)] {
    if (--*left > 0) return false;
    work();
    return true;
  }});
}

Tensor FakeGpuLibrary::pinned(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, type);
}

GpuLibrary::Stream FakeGpuLibrary::new_stream() {
  ++open_streams;
  return new Queue;
}

void FakeGpuLibrary::free(Stream stream) noexcept {
  --open_streams;
  delete static_cast<Queue*>(stream);
}

GpuLibrary::Event FakeGpuLibrary::new_event() {
  ++open_events;
  return new Mark;
}

void FakeGpuLibrary::free_event(Event event) noexcept {
  --open_events;
  delete static_cast<Mark*>(event);
}

void FakeGpuLibrary::record(Event event, Stream stream) {
  auto* queue = static_cast<Queue*>(stream);
  *static_cast<Mark*>(event) = {queue, queue->added};
}

void FakeGpuLibrary::wait(Stream stream, Event event) {
  const Mark mark = *static_cast<Mark*>(event);
  add(stream, {.has_ended = [this, mark] { return passed(mark); }});
}

bool FakeGpuLibrary::has_passed(Event event) { return passed(*static_cast<Mark*>(event)); }

void FakeGpuLibrary::copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  ++copies;
  add(stream, {.begin = [to, from, bytes] {
        if (bytes > 0) std::memcpy(to, from, bytes);
      }});
}

void FakeGpuLibrary::finish(Stream stream) {
  auto& queue = *static_cast<Queue*>(stream);
  while (!queue.works.empty()) get_on(queue);
}

GpuLibrary::Status FakeGpuLibrary::unique_id(Id& id) {
  if (!failure.empty()) return Status::Error;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  id.fill(static_cast<char>('a' + rank));
  id.front() = '\0';  // any byte may be in an id
  return Status::Success;
}

GpuLibrary::Status FakeGpuLibrary::init(Comm& comm, int ranks, const Id& id, int rank) {
  Id expected;
  expected.fill('a');
  expected.front() = '\0';
  int size = 0;
  int own = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  if (id != expected || ranks != size || rank != own) {
    text_ = "a rank has another id, number of ranks or place";
    return Status::Error;
  }
  auto* made = new FakeComm;
  MPI_Comm_dup(MPI_COMM_WORLD, &made->comm);
  comm = made;
  ++open_comms;
  return Status::InProgress;
}

GpuLibrary::Status FakeGpuLibrary::split(Comm& part, Comm comm, int colour, int key) {
  auto& whole = *static_cast<FakeComm*>(comm);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(whole.comm, colour == Communicator::kNoPart ? MPI_UNDEFINED : colour, key, &half);
  part = nullptr;
  FakeComm* made = half == MPI_COMM_NULL ? nullptr : new FakeComm{.comm = half};
  if (made != nullptr) ++open_comms;
  whole.looks_until_ready = 2;
  whole.when_ready = [&part, made] { part = made; };
  return Status::InProgress;
}

GpuLibrary::Status FakeGpuLibrary::add_requests(
    Stream stream, std::function<void(std::vector<MPI_Request>&)> begin) {
  if (!failure.empty()) return Status::Error;
  auto requests = std::make_shared<std::vector<MPI_Request>>();
  if (hangs) {
    add(stream, {.has_ended = [] { return false; }});
    return Status::Success;
  }
  add(stream, {.begin = [requests, begin = std::move(begin)] { begin(*requests); },
               .has_ended =
                   [requests] {
                     int done = 0;
                     MPI_Testall(static_cast<int>(requests->size()), requests->data(), &done,
                                 MPI_STATUSES_IGNORE);
                     return done != 0;
                   }});
  return Status::Success;
}

GpuLibrary::Status FakeGpuLibrary::all_reduce(void* values, std::size_t count, Type type,
                                              Reduction reduction, Comm comm, Stream stream) {
  const MPI_Comm over = static_cast<FakeComm*>(comm)->comm;
  return add_requests(stream, [=](std::vector<MPI_Request>& requests) {
    MPI_Iallreduce(MPI_IN_PLACE, values, static_cast<int>(count), mpi(type),
                   reduction == Reduction::Sum ? MPI_SUM : MPI_MAX, over, &requests.emplace_back());
  });
}

GpuLibrary::Status FakeGpuLibrary::broadcast(void* values, std::size_t count, Type type, int root,
                                             Comm comm, Stream stream) {
  const MPI_Comm over = static_cast<FakeComm*>(comm)->comm;
  return add_requests(stream, [=](std::vector<MPI_Request>& requests) {
    MPI_Ibcast(values, static_cast<int>(count), mpi(type), root, over, &requests.emplace_back());
  });
}

GpuLibrary::Status FakeGpuLibrary::add_message(Stream stream,
                                               std::function<int(MPI_Request*)> begin) {
  if (!in_group_) {
    text_ = "a message outside a group";
    return Status::Error;
  }
  group_stream_ = stream;
  group_.push_back(std::move(begin));
  return Status::Success;
}

GpuLibrary::Status FakeGpuLibrary::send(const void* values, std::size_t count, Type type, int peer,
                                        Comm comm, Stream stream) {
  const MPI_Comm over = static_cast<FakeComm*>(comm)->comm;
  return add_message(stream, [=](MPI_Request* request) {
    return MPI_Isend(values, static_cast<int>(count), mpi(type), peer, 0, over, request);
  });
}

GpuLibrary::Status FakeGpuLibrary::receive(void* values, std::size_t count, Type type, int peer,
                                           Comm comm, Stream stream) {
  const MPI_Comm over = static_cast<FakeComm*>(comm)->comm;
  return add_message(stream, [=](MPI_Request* request) {
    return MPI_Irecv(values, static_cast<int>(count), mpi(type), peer, 0, over, request);
  });
}

GpuLibrary::Status FakeGpuLibrary::group_start() {
  in_group_ = true;
  return Status::Success;
}

GpuLibrary::Status FakeGpuLibrary::group_end() {
  in_group_ = false;
  if (group_.empty()) return Status::Success;
  const auto messages = std::move(group_);
  group_.clear();
  return add_requests(group_stream_, [messages](std::vector<MPI_Request>& requests) {
    for (const auto& begin : messages) begin(&requests.emplace_back());
  });
}

GpuLibrary::Status FakeGpuLibrary::asynchronous_error(Comm comm) {
  auto& seen = *static_cast<FakeComm*>(comm);
  if (seen.looks_until_ready > 0) {
    if (--seen.looks_until_ready == 0) std::exchange(seen.when_ready, [] {})();
    return Status::InProgress;
  }
  return asynchronous_failure.empty() ? Status::Success : Status::Error;
}

std::string FakeGpuLibrary::error_text(Comm /*comm*/) {
  if (!failure.empty()) return failure;
  return asynchronous_failure.empty() ? text_ : asynchronous_failure;
}

void FakeGpuLibrary::abort(Comm comm) noexcept {
  ++aborted;
  --open_comms;
  delete static_cast<FakeComm*>(comm);  // MPI's is left to its end: requests may be under way
}

void FakeGpuLibrary::destroy(Comm comm) noexcept {
  ++destroyed;
  --open_comms;
  MPI_Comm_free(&static_cast<FakeComm*>(comm)->comm);
  delete static_cast<FakeComm*>(comm);
}

}  // namespace fedhpc
