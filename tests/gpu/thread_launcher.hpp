#pragma once

#include <algorithm>
#include <array>
#include <pthread.h>
#include <thread>
#include <vector>

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::test {

/// Who waits sleeps: std::barrier's spin first, which takes minutes where cores are shared.
class Barrier {
 public:
  explicit Barrier(int threads) {
    pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(threads));
  }
  ~Barrier() { pthread_barrier_destroy(&barrier_); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  void arrive_and_wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

/// Groups of threads that really go beside each other, as a device's do: two teams of four.
class ThreadGroup {
 public:
  static constexpr int kLanes = 4;
  static constexpr int kTeams = 2;
  static constexpr int kSize = kLanes * kTeams;

  /// What the threads of a group share.
  struct Shared {
    Barrier everyone{kSize};
    std::array<Barrier, kTeams> team{Barrier(kLanes), Barrier(kLanes)};
    std::array<kernels::TwoSums, kSize> sums;
    std::array<double, kSize> values{};
  };

  ThreadGroup(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return kSize; }
  std::int64_t lane() const { return rank_ % kLanes; }
  std::int64_t lanes() const { return kLanes; }
  std::int64_t team() const { return rank_ / kLanes; }
  std::int64_t teams() const { return kTeams; }

  kernels::TwoSums sum(const kernels::TwoSums& x) {
    shared_.sums[static_cast<std::size_t>(rank_)] = x;
    shared_.everyone.arrive_and_wait();
    kernels::TwoSums total;
    for (const kernels::TwoSums& one : shared_.sums) {
      total.first += one.first;
      total.second += one.second;
    }
    shared_.everyone.arrive_and_wait();
    return total;
  }
  double sum(double x) { return sum(kernels::TwoSums{x, 0}).first; }

  template <typename T>
  T team_sum(T x) {
    T total{0};
    each_of_team(x, [&](T one) { total += one; });
    return total;
  }
  template <typename T>
  T team_max(T x) {
    T largest = x;
    each_of_team(x, [&](T one) { largest = largest < one ? one : largest; });
    return largest;
  }
  void sync() { shared_.everyone.arrive_and_wait(); }
  void team_sync() { shared_.team[static_cast<std::size_t>(team())].arrive_and_wait(); }

 private:
  template <typename T, typename Work>
  void each_of_team(T x, const Work& work) {
    auto& barrier = shared_.team[static_cast<std::size_t>(team())];
    shared_.values[static_cast<std::size_t>(rank_)] = static_cast<double>(x);
    barrier.arrive_and_wait();
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      work(static_cast<T>(shared_.values[static_cast<std::size_t>(team() * kLanes + lane)]));
    }
    barrier.arrive_and_wait();
  }

  Shared& shared_;
  int rank_;
};

/// Kernels on host memory by threads; elements from the last to the first, as no order is promised.
struct ThreadLauncher {
  static constexpr int kTileThreads = ThreadGroup::kSize;

  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    for (std::int64_t i = count; i-- > 0;) kernel(i);
  }

  template <typename Kernel>
  void groups(std::int64_t count, int, const Kernel& kernel) const {
    beside_each_other([&](ThreadGroup& group) {
      for (std::int64_t g = count; g-- > 0;) kernel(group, g);
    });
  }

  template <typename Kernel>
  void tiles(std::int64_t count, const Kernel& kernel) const {
    static_assert(Kernel::kThreads == kTileThreads);
    typename Kernel::Shared shared;
    beside_each_other([&](ThreadGroup& group) {
      kernels::SharedMemory memory(shared);
      for (std::int64_t g = count; g-- > 0;) {
        if (group.rank() == 0) kernels::SharedMemory::forget(shared);
        group.sync();
        kernel(group, g, shared);
        group.sync();  // the next group's memory is another one on a device
      }
    });
  }

 private:
  template <typename Work>
  static void beside_each_other(const Work& work) {
    ThreadGroup::Shared shared;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ThreadGroup::kSize; ++rank) {
      threads.emplace_back([&shared, &work, rank] {
        ThreadGroup group(shared, rank);
        work(group);
      });
    }
  }
};

}  // namespace fedhpc::test
