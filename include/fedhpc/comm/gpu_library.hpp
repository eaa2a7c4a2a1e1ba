#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Lists the functions of the CUDA runtime and of NCCL that communicators call, one by one, without
/// logic of its own. The real one is a module that is loaded when a GPU is asked for or a job has
/// one, so that a run on CPUs needs neither library. Tests have another one on host memory.
class GpuLibrary {
 public:
  using Stream = void*;
  using Event = void*;
  using Comm = void*;
  /// The ranks of a communicator share it before the communicator exists (ncclUniqueId).
  using Id = std::array<char, 128>;

  /// The status of NCCL's calls. Communicators do not block: work begun may be InProgress.
  enum class Status { Success, InProgress, Error };
  enum class Type { Float32, Float64, Int64 };
  enum class Reduction { Sum, Max };

  virtual ~GpuLibrary() = default;

  virtual std::string version() const = 0;  ///< "nccl-2.28.9"

  // The CUDA runtime. These throw Error with its text.
  virtual int devices() const = 0;  ///< this process sees; Error says why there is none
  virtual std::string card(int device) const = 0;  ///< its UUID, the same in every process
  virtual void use_(int device) = 0;               ///< of this thread, from now on
  virtual std::int64_t free_bytes() const = 0;     ///< of the device in use
  virtual bool holds(const Tensor& values) const = 0;
  virtual Tensor pinned(at::IntArrayRef shape, at::ScalarType type) = 0;  ///< host memory
  /// Returns pinned memory [bytes] that is kept for long: not a byte more, but slow to get and to
  /// free.
  virtual Tensor lasting_pinned(std::int64_t bytes) = 0;
  virtual Stream tensor_stream() = 0;  ///< work on tensors is enqueued on it
  virtual Stream new_stream() = 0;
  virtual void free(Stream stream) noexcept = 0;
  virtual Event new_event() = 0;
  virtual void free_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;  ///< the stream waits, not the caller
  virtual bool has_passed(Event event) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  virtual void finish(Stream stream) = 0;  ///< waits for all work enqueued

  // NCCL. `comm` and `part` may get their values later: they stay where they are until the
  // communicator (the one that is split) is no longer InProgress.
  virtual Status unique_id(Id& id) = 0;
  virtual Status init(Comm& comm, int ranks, const Id& id, int rank) = 0;
  /// A rank of colour Communicator::kNoPart gets none.
  virtual Status split(Comm& part, Comm comm, int colour, int key) = 0;
  virtual Status all_reduce(void* values, std::size_t count, Type type, Reduction reduction,
                            Comm comm, Stream stream) = 0;
  virtual Status broadcast(void* values, std::size_t count, Type type, int root, Comm comm,
                           Stream stream) = 0;
  virtual Status send(const void* values, std::size_t count, Type type, int peer, Comm comm,
                      Stream stream) = 0;
  virtual Status receive(void* values, std::size_t count, Type type, int peer, Comm comm,
                         Stream stream) = 0;
  virtual Status group_start() = 0;
  virtual Status group_end() = 0;
  virtual Status asynchronous_error(Comm comm) = 0;
  virtual std::string error_text(Comm comm) = 0;  ///< of the last call or asynchronous error
  virtual void abort(Comm comm) noexcept = 0;
  virtual void destroy(Comm comm) noexcept = 0;
};

/// The module with the real functions, loaded once a process. Throws Error with the reason if this
/// build has none or it cannot be loaded.
GpuLibrary& gpu_library();

}  // namespace fedhpc
