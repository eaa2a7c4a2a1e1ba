// The kernels on a device.

#include <algorithm>
#include <cuda_runtime.h>

#include "fedhpc/core/error.hpp"

#include "gpu/cuda_table.hpp"
#include "gpu/kernels/table.hpp"

namespace fedhpc {

namespace {

using kernels::kMostThreads;
using kernels::kWarp;
constexpr unsigned kAllLanes = 0xffffffff;
constexpr int kElementThreads = 256;         // of a block
constexpr std::int64_t kMostBlocks = 16384;  // beyond, threads take several elements

/// Every lane gets the same sum: those of both partners of a pair are a + b and b + a.
template <typename T>
__device__ T warp_sum(T x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

/// A thread block, as kernels with memory of their own see it.
class TileGroup {
 public:
  __device__ std::int64_t rank() const { return threadIdx.x; }
  __device__ std::int64_t size() const { return blockDim.x; }
  __device__ std::int64_t lane() const { return threadIdx.x % kWarp; }
  __device__ std::int64_t lanes() const { return kWarp; }
  __device__ std::int64_t team() const { return threadIdx.x / kWarp; }
  __device__ std::int64_t teams() const { return blockDim.x / kWarp; }

  template <typename T>
  __device__ T team_sum(T x) const {
    return warp_sum(x);
  }
  template <typename T>
  __device__ T team_max(T x) const {
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const T other = __shfl_xor_sync(kAllLanes, x, step);
      x = x < other ? other : x;
    }
    return x;
  }
  __device__ void team_sync() const { __syncwarp(); }
  __device__ void sync() const { __syncthreads(); }
};

/// A thread block that can sum, as the others see it.
class BlockGroup : public TileGroup {
 public:
  __device__ explicit BlockGroup(kernels::TwoSums* shared) : shared_(shared) {}

  __device__ kernels::TwoSums sum(const kernels::TwoSums& x) const {
    const kernels::TwoSums own{warp_sum(x.first), warp_sum(x.second)};
    __syncthreads();  // the last sum has been read
    if (lane() == 0) shared_[team()] = own;
    __syncthreads();
    kernels::TwoSums total;
    for (int i = 0; i < teams(); ++i) {
      total.first += shared_[i].first;
      total.second += shared_[i].second;
    }
    return total;
  }
  __device__ double sum(double x) const { return sum(kernels::TwoSums{x, 0}).first; }

 private:
  kernels::TwoSums* shared_;
};

template <typename Kernel>
__global__ void __launch_bounds__(kElementThreads)
    run_each(std::int64_t count, const __grid_constant__ Kernel kernel) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kElementThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
       i < count; i += stride) {
    kernel(i);
  }
}

template <typename Kernel>
__global__ void __launch_bounds__(kMostThreads) run_groups(const __grid_constant__ Kernel kernel) {
  __shared__ kernels::TwoSums shared[kMostThreads / kWarp];
  BlockGroup group(shared);
  kernel(group, blockIdx.x);
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    run_tiles(const __grid_constant__ Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  TileGroup group;
  kernel(group, blockIdx.x, shared);
}

class CudaLauncher {
 public:
  static constexpr int kTileThreads = kernels::kTileThreads;

  explicit CudaLauncher(CudaLibraries& libraries) : libraries_(&libraries) {}

  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    const std::int64_t blocks = (count + kElementThreads - 1) / kElementThreads;
    run_each<<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kElementThreads, 0,
               stream()>>>(count, kernel);
    check();
  }

  template <typename Kernel>
  void groups(std::int64_t count, int threads, const Kernel& kernel) const {
    run_groups<<<static_cast<unsigned>(count), std::min(threads, kMostThreads), 0, stream()>>>(
        kernel);
    check();
  }

  template <typename Kernel>
  void tiles(std::int64_t count, const Kernel& kernel) const {
    static_assert(Kernel::kThreads == kTileThreads);
    run_tiles<<<static_cast<unsigned>(count), kTileThreads, 0, stream()>>>(kernel);
    check();
  }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(libraries_->stream()); }

  static void check() {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) {
      throw Error(concat("a kernel on a CUDA device failed: ", cudaGetErrorString(status)));
    }
  }

  CudaLibraries* libraries_;
};

class CudaTable final : public KernelTable<CudaLauncher> {
 public:
  explicit CudaTable(CudaLibraries& libraries)
      : KernelTable(CudaLauncher(libraries)), libraries_(libraries) {}

  void product(const DeviceProduct& of) override { libraries_.product(of); }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    return libraries_.capture(work);
  }
  void use_precision(Precision precision) override { libraries_.use_precision(precision); }
  void forbid_waiting(bool forbidden) override { libraries_.forbid_waiting(forbidden); }
  void begin_range(const char* name) override { libraries_.begin_range(name); }
  void end_range() override { libraries_.end_range(); }

 private:
  CudaLibraries& libraries_;
};

}  // namespace

int least_capability() {
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};  // 800 is 8.0
  return *std::ranges::min_element(kArchitectures) / 10;
}

std::unique_ptr<DeviceKernels> make_cuda_table(CudaLibraries& libraries) {
  return std::make_unique<CudaTable>(libraries);
}

}  // namespace fedhpc
