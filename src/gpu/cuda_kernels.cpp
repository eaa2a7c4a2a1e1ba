// The module that device_kernels() loads: what of the table LibTorch and CUDA's libraries do.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <exception>
#include <iterator>
#include <nvtx3/nvToolsExt.h>

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"

#include "gpu/blas_product.hpp"
#include "gpu/cuda_table.hpp"

namespace fedhpc {

namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(concat(what, " failed: ", cublasGetStatusString(status)));
  }
}

cublasComputeType_t compute_type(const DeviceProduct& of) {
  if (of.type == DType::Float64) return CUBLAS_COMPUTE_64F;
  switch (of.precision) {
    case Precision::Fp32:
      return CUBLAS_COMPUTE_32F;
    case Precision::Tf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Precision::Bf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
  }
  return CUBLAS_COMPUTE_32F;
}

cublasOperation_t operation(const BlasProduct::Factor& of) {
  return of.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// Where all graphs of a process are captured. They are replayed one after the other on one stream,
/// and nothing that a step allocates outlives it, so they work in the same memory; a graph with
/// memory of its own would keep it from all others, and a stream of its own would take a workspace
/// of cuBLAS.
struct CapturePlace {
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false);
  at::cuda::MemPool memory;

  CapturePlace() {
    // The memory on the card belongs to the pool. That of the host belongs to the graphs that use
    // it, and once the last of them is gone LibTorch takes no other: this use of it has no end.
    at::HostAllocator* host = at::getHostAllocator(at::kCUDA);
    host->begin_allocate_to_pool(memory.id(), [](c10::Stream) { return false; });
    host->end_allocate_to_pool(memory.id());
  }

  /// Never destroyed: CUDA may have ended before the process does.
  static CapturePlace& of_process() {
    static auto* const place = new CapturePlace;
    return *place;
  }
};

/// LibTorch's graph, which may be destroyed where it found no memory to begin with.
class RecordedGraph final : public at::cuda::CUDAGraph {
 public:
  RecordedGraph() : CUDAGraph(/*keep_graph=*/true) {}

  /// LibTorch notes a generator before the generator knows the graph; its destructor, which may not
  /// throw, would find that missing and end the process.
  void forget_strangers() {
    for (auto noted = captured_generator_states_.begin();
         noted != captured_generator_states_.end();) {
      const bool known = noted->first->registered_graphs_.contains(this);
      noted = known ? std::next(noted) : captured_generator_states_.erase(noted);
    }
  }
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(const std::function<void()>& work) {
    CapturePlace& place = CapturePlace::of_process();
    at::cuda::CUDAEvent before;
    before.record();
    const c10::cuda::CUDAStreamGuard guard(place.stream);  // the default one cannot be captured
    before.block(place.stream);
    try {
      // Other threads (of MPI, of NCCL) may go on with what a capture would not allow.
      graph_.capture_begin(place.memory.id(), cudaStreamCaptureModeThreadLocal);
      work();
      graph_.capture_end();
    } catch (...) {
      const std::exception_ptr reason = std::current_exception();
      graph_.forget_strangers();
      give_up(place);
      std::rethrow_exception(reason);
    }
    // LibTorch's graph frees what it holds itself once its capture has ended.
    graph_.instantiate();
  }

  void replay() override { graph_.replay(); }

 private:
  /// Ends a capture that failed, so that allocations find their way back to the common memory.
  static void give_up(CapturePlace& place) {
    cudaGraph_t partial = nullptr;
    cudaStreamEndCapture(place.stream.stream(), &partial);
    if (partial != nullptr) cudaGraphDestroy(partial);
    cudaGetLastError();  // what the capture has left is not the next launch's error
    const auto quietly = [](auto&& end) {
      try {
        end();
      } catch (const std::exception&) {  // it had come to its own end, or never began
      }
    };
    namespace allocator = c10::cuda::CUDACachingAllocator;
    const at::cuda::MempoolId_t pool = place.memory.id();
    quietly([&] {
      allocator::endAllocateToPool(place.stream.device_index(), pool);
      allocator::releasePool(place.stream.device_index(), pool);
    });
    quietly([&] {
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
      at::getHostAllocator(at::kCUDA)->release_pool(pool);
    });
    renew_generator();
  }

  /// LibTorch's generator would wait for the end of the capture: another goes on from where it is.
  static void renew_generator() {
    const at::Generator& generator = at::cuda::detail::getDefaultCUDAGenerator();
    auto* own = generator.get<at::CUDAGeneratorImpl>();
    at::Generator fresh = at::cuda::detail::createCUDAGenerator();
    fresh.set_current_seed(own->current_seed());
    fresh.get<at::CUDAGeneratorImpl>()->set_philox_offset_per_thread(
        own->philox_offset_per_thread());
    own->graphsafe_set_state(fresh.get<at::CUDAGeneratorImpl>()->graphsafe_get_state());
  }

  RecordedGraph graph_;
};

class LinkedLibraries final : public CudaLibraries {
 public:
  void* stream() override { return c10::cuda::getCurrentCUDAStream().stream(); }

  void product(const DeviceProduct& of) override {
    if (of.count == 0 || of.rows == 0 || of.columns == 0) return;
    const bool wide = of.type == DType::Float64;
    const cudaDataType_t type = wide ? CUDA_R_64F : CUDA_R_32F;
    const float alpha = static_cast<float>(of.alpha);
    const float beta = static_cast<float>(of.beta);
    const BlasProduct product(of);
    cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
    // The precision is the product's own, whatever LibTorch's is.
    check(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "a choice of cuBLAS's precision");
    check(cublasGemmStridedBatchedEx_64(
              handle, operation(product.first), operation(product.second), product.m, product.n,
              product.k, wide ? static_cast<const void*>(&of.alpha) : &alpha, product.first.data,
              type, product.first.leading, product.first.stack_stride, product.second.data, type,
              product.second.leading, product.second.stack_stride,
              wide ? static_cast<const void*>(&of.beta) : &beta, product.result, type,
              product.result_leading, product.result_stack_stride, product.count, compute_type(of),
              CUBLAS_GEMM_DEFAULT),
          "a matrix product on a CUDA device");
  }

  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    try {
      return std::make_unique<CudaGraph>(work);
    } catch (const c10::OutOfMemoryError&) {
      // While a capture goes on, LibTorch gives nothing back to the card to make room.
      c10::cuda::CUDACachingAllocator::emptyCache();
      return std::make_unique<CudaGraph>(work);
    }
  }

  // LibTorch takes float32 factors as they are or as TF32; bfloat16 is for tensors of that type.
  void use_precision(Precision precision) override {
    const bool rounds = precision != Precision::Fp32;
    at::globalContext().setAllowTF32CuBLAS(rounds);
    at::globalContext().setAllowTF32CuDNN(rounds);
  }

  void forbid_waiting(bool forbidden) override {
    c10::cuda::warning_state().set_sync_debug_mode(
        forbidden ? c10::cuda::SyncDebugMode::L_ERROR : c10::cuda::SyncDebugMode::L_DISABLED);
  }

  void begin_range(const char* name) override { nvtxRangePushA(name); }
  void end_range() override { nvtxRangePop(); }
};

/// Throws Error where a card is older than the kernels: a rank may get any that there are.
void check_cards(int devices) {
  const int least = least_capability();
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp card{};
    if (cudaGetDeviceProperties(&card, device) != cudaSuccess) {
      throw Error(concat("CUDA device ", device, " cannot be asked for what it is"));
    }
    if (10 * card.major + card.minor >= least) continue;
    throw Error(concat("CUDA device ", device, ", ", card.name, ", has compute capability ",
                       card.major, ".", card.minor, ", and this build is for ", least / 10, ".",
                       least % 10, " or newer; leave it out by CUDA_VISIBLE_DEVICES, or use CPUs"));
  }
}

}  // namespace

}  // namespace fedhpc

/// What device_kernels() looks for in this module. Throws Error where a device cannot be used.
extern "C" fedhpc::DeviceKernels* fedhpc_device_kernels() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) {
    throw fedhpc::Error(fedhpc::concat("no CUDA device can be used: ", cudaGetErrorString(status)));
  }
  fedhpc::check_cards(devices);
  static fedhpc::LinkedLibraries libraries;
  // LibTorch's convolutions round to TF32 unless they are told not to.
  libraries.use_precision(fedhpc::Precision::Fp32);
  static const std::unique_ptr<fedhpc::DeviceKernels> table = fedhpc::make_cuda_table(libraries);
  return table.get();
}
