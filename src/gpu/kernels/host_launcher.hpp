#pragma once

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

/// A group of one thread.
struct HostGroup {
  static constexpr std::int64_t rank() { return 0; }
  static constexpr std::int64_t size() { return 1; }
  static constexpr std::int64_t lane() { return 0; }
  static constexpr std::int64_t lanes() { return 1; }
  static constexpr std::int64_t team() { return 0; }
  static constexpr std::int64_t teams() { return 1; }
  static double sum(double x) { return x; }
  static TwoSums sum(const TwoSums& x) { return x; }
  template <typename T>
  static T team_sum(T x) {
    return x;
  }
  template <typename T>
  static T team_max(T x) {
    return x;
  }
  static void team_sync() {}
  static void sync() {}
};

/// Runs kernels at once, one after the other, on host memory.
struct HostLauncher {
  static constexpr int kTileThreads = 1;

  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    for (std::int64_t i = 0; i < count; ++i) kernel(i);
  }
  template <typename Kernel>
  void groups(std::int64_t count, int, const Kernel& kernel) const {
    HostGroup group;
    for (std::int64_t g = 0; g < count; ++g) kernel(group, g);
  }
  template <typename Kernel>
  void tiles(std::int64_t count, const Kernel& kernel) const {
    static_assert(Kernel::kThreads == kTileThreads);
    HostGroup group;
    typename Kernel::Shared shared;
    SharedMemory memory(shared);
    for (std::int64_t g = 0; g < count; ++g) {
      SharedMemory::forget(shared);
      kernel(group, g, shared);
    }
  }
};

}  // namespace fedhpc::kernels
