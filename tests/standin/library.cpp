// The CUDA runtime and NCCL of the stand-in: those of the tests of communicators.
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <ATen/ops/from_blob.h>

#include "comm/fake_gpu_library.hpp"
#include "standin/device.hpp"

namespace fedhpc::standin {

namespace {

class Library final : public FakeGpuLibrary {
 public:
  Library() {
    is_on_device = [](const Tensor& values) { return values.is_cuda(); };
    const bool shared = std::getenv("FEDHPC_STANDIN_SHARE") != nullptr;
    cards.clear();
    for (int i = 0; i < Device::cards(); ++i) {
      cards.push_back(concat("stand-in ", shared ? 0 : getpid(), ".", i));
    }
  }

  void use_(int chosen) override {
    FakeGpuLibrary::use_(chosen);
    Device::get().use_(static_cast<c10::DeviceIndex>(chosen));
  }

  Tensor pinned(at::IntArrayRef shape, at::ScalarType type) override {
    std::size_t bytes = c10::elementSize(type);
    for (const std::int64_t length : shape) bytes *= static_cast<std::size_t>(length);
    return at::from_blob(
        PinnedMemory::get().allocate(bytes), shape,
        [](void* block) { PinnedMemory::get().free(block); }, at::TensorOptions(type));
  }

  // The stream of tensors is the device's default one.
  void record(Event event, Stream stream) override {
    if (stream == tensor_stream()) {
      add(stream, {.has_ended = [mark = Device::get().mark(default_stream())] {
            if (!mark->passed) Device::get().get_on();
            return mark->passed;
          }});
    }
    FakeGpuLibrary::record(event, stream);
  }
  bool has_passed(Event event) override {
    not_captured("a look at an event");
    return FakeGpuLibrary::has_passed(event);
  }
  void finish(Stream stream) override {
    if (stream == tensor_stream()) {
      return Device::get().wait("the end of a stream", default_stream());
    }
    Device::get().wait("the end of a stream");
    FakeGpuLibrary::finish(stream);
  }

  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    not_captured("a copy of communicators");
    if (stream != tensor_stream()) {
      return FakeGpuLibrary::copy(reach(to), reach(from), bytes, stream);
    }
    Device::get().enqueue(default_stream(), [to = reach(to), from = reach(from), bytes] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }
  Status all_reduce(void* values, std::size_t count, Type type, Reduction reduction, Comm comm,
                    Stream stream) override {
    not_captured("a collective");
    return FakeGpuLibrary::all_reduce(reach(values), count, type, reduction, comm, stream);
  }
  Status broadcast(void* values, std::size_t count, Type type, int root, Comm comm,
                   Stream stream) override {
    not_captured("a collective");
    return FakeGpuLibrary::broadcast(reach(values), count, type, root, comm, stream);
  }
  Status send(const void* values, std::size_t count, Type type, int peer, Comm comm,
              Stream stream) override {
    not_captured("a message");
    return FakeGpuLibrary::send(reach(values), count, type, peer, comm, stream);
  }
  Status receive(void* values, std::size_t count, Type type, int peer, Comm comm,
                 Stream stream) override {
    not_captured("a message");
    return FakeGpuLibrary::receive(reach(values), count, type, peer, comm, stream);
  }

 private:
  StreamKey default_stream() const { return {static_cast<c10::DeviceIndex>(device), 0}; }
  template <typename T>
  static T* reach(T* address) {
    return DeviceMemory::get().reach(address);
  }
  static void not_captured(const char* what) {
    if (Device::get().is_capturing()) throw Error(concat(what, " cannot be captured"));
  }
};

}  // namespace

}  // namespace fedhpc::standin

/// What gpu_library() looks for in a module. Never destroyed: communicators may end with the
/// process.
extern "C" fedhpc::GpuLibrary* fedhpc_gpu_library() {
  static auto* library = new fedhpc::standin::Library;
  return library;
}
