#include "fedhpc/comm/gpu_library.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next kernel would be told that it has failed
  throw Error(concat(what, " failed: ", cudaGetErrorString(status)));
}

ncclComm_t nccl(GpuLibrary::Comm comm) { return static_cast<ncclComm_t>(comm); }
/// Where NCCL puts a communicator, from a thread of its own when that is made.
ncclComm_t* nccl(GpuLibrary::Comm* comm) { return reinterpret_cast<ncclComm_t*>(comm); }
cudaStream_t cuda(GpuLibrary::Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(GpuLibrary::Event event) { return static_cast<cudaEvent_t>(event); }

ncclDataType_t nccl(GpuLibrary::Type type) {
  switch (type) {
    case GpuLibrary::Type::Float32:
      return ncclFloat32;
    case GpuLibrary::Type::Float64:
      return ncclFloat64;
    case GpuLibrary::Type::Int64:
      return ncclInt64;
  }
  return ncclFloat32;
}

/// CUDA's runtime and NCCL.
class CudaLibrary final : public GpuLibrary {
 public:
  std::string version() const override {
    int version = 0;
    ncclGetVersion(&version);
    return concat("nccl-", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  int devices() const override {
    int count = 0;
    check(cudaGetDeviceCount(&count), "a look for CUDA devices");
    return count;
  }

  std::string card(int device) const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "a look at a CUDA device");
    std::string text;
    for (const char byte : properties.uuid.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
      text += digits;
    }
    return text;
  }

  void use_(int device) override { check(cudaSetDevice(device), "the choice of a CUDA device"); }

  std::int64_t free_bytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "a look at the device's memory");
    return static_cast<std::int64_t>(free);
  }

  bool holds(const Tensor& values) const override { return values.is_cuda(); }

  Tensor pinned(at::IntArrayRef shape, at::ScalarType type) override {
    // LibTorch's own, once it is there, is kept for the next one and may be let go while it is
    // copied. It has a power of two of bytes.
    if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
      return at::empty(shape, at::TensorOptions(type).pinned_memory(true));
    }
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(type));
    for (const std::int64_t length : shape) bytes *= length;
    return lasting_pinned(bytes).view(type).view(shape);
  }

  Tensor lasting_pinned(std::int64_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0) {
      check(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)),
            "an allocation of pinned memory");
    }
    return at::from_blob(
        memory, {bytes},
        [](void* pinned_memory) {
          cudaDeviceSynchronize();  // copies may be on their way
          cudaFreeHost(pinned_memory);
        },
        at::TensorOptions(at::kByte));
  }

  // LibTorch enqueues work on the device's default stream.
  Stream tensor_stream() override { return nullptr; }

  Stream new_stream() override {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a CUDA stream");
    return stream;
  }
  void free(Stream stream) noexcept override {
    if (stream != nullptr) cudaStreamDestroy(cuda(stream));
  }

  Event new_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "a CUDA event");
    return event;
  }
  void free_event(Event event) noexcept override {
    if (event != nullptr) cudaEventDestroy(event_of(event));
  }
  void record(Event event, Stream stream) override {
    check(cudaEventRecord(event_of(event), cuda(stream)), "a CUDA event");
  }
  void wait(Stream stream, Event event) override {
    check(cudaStreamWaitEvent(cuda(stream), event_of(event), 0), "a CUDA stream's wait");
  }
  bool has_passed(Event event) override {
    const cudaError_t status = cudaEventQuery(event_of(event));
    if (status == cudaErrorNotReady) {
      // No error: should the runtime have kept it as one, the next launch would report it.
      if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
      return false;
    }
    check(status, "work on a CUDA device");
    return true;
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda(stream)), "a copy");
  }
  void finish(Stream stream) override {
    check(cudaStreamSynchronize(cuda(stream)), "work on a CUDA device");
  }

  Status unique_id(Id& id) override {
    ncclUniqueId made;
    static_assert(sizeof made.internal == sizeof(Id));
    const Status status = seen(ncclGetUniqueId(&made));
    std::memcpy(id.data(), made.internal, sizeof made.internal);
    return status;
  }

  Status init(Comm& comm, int ranks, const Id& id, int rank) override {
    ncclUniqueId known;
    std::memcpy(known.internal, id.data(), sizeof known.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    comm = nullptr;
    return seen(ncclCommInitRankConfig(nccl(&comm), ranks, known, rank, &config));
  }

  Status split(Comm& part, Comm comm, int colour, int key) override {
    part = nullptr;
    static_assert(Communicator::kNoPart == NCCL_SPLIT_NOCOLOR);
    return seen(ncclCommSplit(nccl(comm), colour, key, nccl(&part), nullptr));
  }

  Status all_reduce(void* values, std::size_t count, Type type, Reduction reduction, Comm comm,
                    Stream stream) override {
    return seen(ncclAllReduce(values, values, count, nccl(type),
                              reduction == Reduction::Sum ? ncclSum : ncclMax, nccl(comm),
                              cuda(stream)));
  }
  Status broadcast(void* values, std::size_t count, Type type, int root, Comm comm,
                   Stream stream) override {
    return seen(ncclBroadcast(values, values, count, nccl(type), root, nccl(comm), cuda(stream)));
  }
  Status send(const void* values, std::size_t count, Type type, int peer, Comm comm,
              Stream stream) override {
    return seen(ncclSend(values, count, nccl(type), peer, nccl(comm), cuda(stream)));
  }
  Status receive(void* values, std::size_t count, Type type, int peer, Comm comm,
                 Stream stream) override {
    return seen(ncclRecv(values, count, nccl(type), peer, nccl(comm), cuda(stream)));
  }
  Status group_start() override { return seen(ncclGroupStart()); }
  Status group_end() override { return seen(ncclGroupEnd()); }

  Status asynchronous_error(Comm comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t looked = ncclCommGetAsyncError(nccl(comm), &state);
    return seen(looked == ncclSuccess ? state : looked);
  }

  std::string error_text(Comm comm) override {
    const char* detail = ncclGetLastError(nccl(comm));
    std::string text = ncclGetErrorString(last_);
    if (detail != nullptr && *detail != '\0') text += concat(" (", detail, ")");
    return text;
  }
  void abort(Comm comm) noexcept override { ncclCommAbort(nccl(comm)); }
  void destroy(Comm comm) noexcept override {
    // Of a communicator that does not block, destroying waits for what finalising begins.
    ncclCommFinalize(nccl(comm));
    constexpr std::chrono::seconds kPatience{10};
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    ncclResult_t state = ncclInProgress;
    while (ncclCommGetAsyncError(nccl(comm), &state) == ncclSuccess && state == ncclInProgress) {
      if (std::chrono::steady_clock::now() > deadline) return abort(comm);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ncclCommDestroy(nccl(comm));
  }

 private:
  Status seen(ncclResult_t result) {
    if (result == ncclSuccess) return Status::Success;
    if (result == ncclInProgress) return Status::InProgress;
    last_ = result;
    return Status::Error;
  }

  ncclResult_t last_ = ncclSuccess;
};

}  // namespace

}  // namespace fedhpc

/// What gpu_library() looks for in this module.
extern "C" fedhpc::GpuLibrary* fedhpc_gpu_library() {
  static fedhpc::CudaLibrary library;
  return &library;
}
