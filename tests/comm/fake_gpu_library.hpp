#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "fedhpc/comm/gpu_library.hpp"

namespace fedhpc {

/// NCCL and the CUDA runtime as tests have them: the host's memory is the device's, streams are
/// queues that get on when somebody looks, collectives are MPI's. It keeps the rules that the real
/// ones have: work of a stream is done in its order, another stream's only before it if it waits
/// for an event; messages between pairs of ranks go in groups; the id is that of rank 0; what was
/// begun may take a few looks to be ready, and only then has the part of a split its place.
class FakeGpuLibrary : public GpuLibrary {
 public:
  // What a test sets.
  std::function<bool(const Tensor&)> is_on_device = [](const Tensor&) { return true; };
  std::vector<std::string> cards = {"card"};  ///< that this process sees
  bool hangs = false;                         ///< collectives never end
  std::string asynchronous_failure;           ///< what NCCL reports while it works
  std::string failure;                        ///< what the next calls of NCCL report
  // What a test sees.
  int device = -1;
  int aborted = 0;
  int destroyed = 0;
  int copies = 0;
  int open_comms = 0;
  int open_streams = 0;
  int open_events = 0;

  /// Work on tensors that takes `looks` looks at the stream.
  void enqueue(int looks, std::function<void()> work);

  std::string version() const override { return "nccl-0.0.0"; }
  int devices() const override { return static_cast<int>(cards.size()); }
  std::string card(int of_device) const override {
    return cards.at(static_cast<std::size_t>(of_device));
  }
  void use_(int chosen) override { device = chosen; }
  std::int64_t free_bytes() const override { return std::int64_t{1} << 30; }
  bool holds(const Tensor& values) const override { return is_on_device(values); }
  Tensor pinned(at::IntArrayRef shape, at::ScalarType type) override;
  Tensor lasting_pinned(std::int64_t bytes) override { return pinned({bytes}, at::kByte); }
  Stream tensor_stream() override { return &tensor_stream_; }
  Stream new_stream() override;
  void free(Stream stream) noexcept override;
  Event new_event() override;
  void free_event(Event event) noexcept override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool has_passed(Event event) override;
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override;
  void finish(Stream stream) override;
  Status unique_id(Id& id) override;
  Status init(Comm& comm, int ranks, const Id& id, int rank) override;
  Status split(Comm& part, Comm comm, int colour, int key) override;
  Status all_reduce(void* values, std::size_t count, Type type, Reduction reduction, Comm comm,
                    Stream stream) override;
  Status broadcast(void* values, std::size_t count, Type type, int root, Comm comm,
                   Stream stream) override;
  Status send(const void* values, std::size_t count, Type type, int peer, Comm comm,
              Stream stream) override;
  Status receive(void* values, std::size_t count, Type type, int peer, Comm comm,
                 Stream stream) override;
  Status group_start() override;
  Status group_end() override;
  Status asynchronous_error(Comm comm) override;
  std::string error_text(Comm comm) override;
  void abort(Comm comm) noexcept override;
  void destroy(Comm comm) noexcept override;

 protected:
  /// One thing in a stream's queue: begun once what is before it has ended.
  struct Work {
    std::function<void()> begin = [] {};
    std::function<bool()> has_ended = [] { return true; };
    bool begun = false;
  };
  void add(Stream stream, Work work);

 private:
  struct Queue {
    std::deque<Work> works;
    std::int64_t added = 0;
    std::int64_t ended = 0;
  };
  struct Mark {
    Queue* queue = nullptr;
    std::int64_t position = 0;
  };
  struct FakeComm {
    MPI_Comm comm = MPI_COMM_NULL;
    int looks_until_ready = 3;
    std::function<void()> when_ready = [] {};
  };

  /// Lets a queue get on; events of other streams that it waits for as well.
  void get_on(Queue& queue);
  bool passed(const Mark& mark);
  /// Work that begins MPI requests and ends with them.
  Status add_requests(Stream stream, std::function<void(std::vector<MPI_Request>&)> begin);

  Status add_message(Stream stream, std::function<int(MPI_Request*)> begin);

  Queue tensor_stream_;
  bool in_group_ = false;
  Stream group_stream_ = nullptr;
  std::vector<std::function<int(MPI_Request*)>> group_;
  std::string text_;
};

}  // namespace fedhpc
