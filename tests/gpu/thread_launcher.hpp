#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <pthread.h>
#include <semaphore.h>
#include <thread>
#include <vector>

#include "gpu/kernels/kernel.hpp"
#include "gpu/kernels/packs.hpp"

#if defined(FEDHPC_THREAD_SANITIZER)
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);  // NOLINT: of ThreadSanitizer
void AnnotateIgnoreSyncEnd(const char* file, int line);    // NOLINT
}
#endif

namespace fedhpc::test {

/// How many threads there are.
struct GroupSizes {
  int lanes;     // of a team
  int most;      // of a group
  int tile;      // of a group with memory
  int beside;    // of all groups that go beside each other, at least one group's
  int elements;  // that take elements beside each other

  /// The groups of so many threads that go beside each other.
  constexpr int places(int threads) const { return std::max(beside / threads, 1); }
};
/// Two teams of four, one group after the other: quick.
constexpr GroupSizes kFewThreads{.lanes = 4, .most = 8, .tile = 8, .beside = 8, .elements = 1};
/// As many as a card has, and some groups beside each other. Who takes elements waits for nobody: how many do is no matter.
constexpr GroupSizes kCardThreads{.lanes = kernels::kWarp,
                                  .most = kernels::kMostThreads,
                                  .tile = kernels::kTileThreads,
                                  .beside = 2 * kernels::kMostThreads,
                                  .elements = 7};

/// Who waits sleeps: std::barrier's spin first, which takes minutes where cores are shared. Two take turns: with one,
/// ThreadSanitizer would order what a thread does that leaves late behind what others did before they came back.
class Barrier {
 public:
  explicit Barrier(int threads) {
    for (auto& one : turns_) pthread_barrier_init(&one, nullptr, static_cast<unsigned>(threads));
  }
  ~Barrier() {
    for (auto& one : turns_) pthread_barrier_destroy(&one);
  }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// `been`: how often this thread has been here.
  void arrive_and_wait(unsigned& been) { pthread_barrier_wait(&turns_[been++ % 2]); }

 private:
  pthread_barrier_t turns_[2];
};

/// As long as this lives, ThreadSanitizer takes no wait of this thread for an order of what it reads and writes.
class OrdersNothing {
 public:
#if defined(FEDHPC_THREAD_SANITIZER)
  OrdersNothing() { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
  ~OrdersNothing() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }
#else
  OrdersNothing() {}
  ~OrdersNothing() {}
#endif
  OrdersNothing(const OrdersNothing&) = delete;
  OrdersNothing& operator=(const OrdersNothing&) = delete;
};

/// One thread of groups whose threads really go beside each other, as a device's do.
class ThreadGroup {
 public:
  /// What the threads of a group share.
  struct Shared {
    Shared(int threads, int of_a_team)
        : size(threads),
          lanes(of_a_team),
          everyone(threads),
          sums(static_cast<std::size_t>(threads)),
          values(static_cast<std::size_t>(threads)) {
      for (int first = 0; first < size; first += lanes) team.emplace_back(lanes);
    }

    int size;
    int lanes;
    Barrier everyone;
    std::deque<Barrier> team;
    std::vector<kernels::TwoSums> sums;
    std::vector<std::atomic<double>> values;
  };

  /// The threads do not wait in their `left_out`th sync() and team_sync() of each piece of work (0: they always do).
  ThreadGroup(Shared& shared, int rank, int left_out)
      : shared_(shared), rank_(rank), left_out_(left_out) {}

  /// Another piece of work begins.
  void begin() { syncs_ = team_syncs_ = 0; }
  /// Like sync(), but none that is left out.
  void wait() { shared_.everyone.arrive_and_wait(been_with_all_); }

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return shared_.size; }
  std::int64_t lane() const { return rank_ % shared_.lanes; }
  std::int64_t lanes() const { return shared_.lanes; }
  std::int64_t team() const { return rank_ / shared_.lanes; }
  std::int64_t teams() const { return shared_.size / shared_.lanes; }

  kernels::TwoSums sum(const kernels::TwoSums& x) {
    shared_.sums[static_cast<std::size_t>(rank_)] = x;
    wait();
    kernels::TwoSums total;
    for (const kernels::TwoSums& one : shared_.sums) {
      total.first += one.first;
      total.second += one.second;
    }
    wait();
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
  void sync() {
    if (++syncs_ != left_out_) wait();
  }
  void team_sync() {
    if (++team_syncs_ != left_out_) wait_for_team();
  }

 private:
  void wait_for_team() {
    shared_.team[static_cast<std::size_t>(team())].arrive_and_wait(been_with_team_);
  }

  /// A warp's lanes get each other's numbers, and that orders nothing that they read or write.
  template <typename T, typename Work>
  void each_of_team(T x, const Work& work) {
    const OrdersNothing here;
    shared_.values[static_cast<std::size_t>(rank_)].store(static_cast<double>(x),
                                                          std::memory_order_relaxed);
    wait_for_team();
    for (std::int64_t lane = 0; lane < lanes(); ++lane) {
      const auto& value = shared_.values[static_cast<std::size_t>(team() * lanes() + lane)];
      work(static_cast<T>(value.load(std::memory_order_relaxed)));
    }
    wait_for_team();
  }

  Shared& shared_;
  int rank_;
  int left_out_;
  int syncs_ = 0;
  int team_syncs_ = 0;
  unsigned been_with_all_ = 0;
  unsigned been_with_team_ = 0;
};

/// Threads that wait for work: with ThreadSanitizer it takes longer to make one than to run most kernels.
class ThreadPool {
 public:
  ThreadPool() { sem_init(&done_, 0, 0); }
  ~ThreadPool() {
    work_ = nullptr;
    for (Worker& worker : workers_) sem_post(&worker.start);
    for (Worker& worker : workers_) worker.thread.join();
    for (Worker& worker : workers_) sem_destroy(&worker.start);
    sem_destroy(&done_);
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static ThreadPool& instance() {
    static ThreadPool pool;
    return pool;
  }

  /// Calls work(0) to work(count - 1) beside each other. Nothing but its begin and its end orders them.
  void run(int count, const std::function<void(int)>& work) {
    if (count == 1) return work(0);
    work_ = &work;
    while (static_cast<int>(workers_.size()) < count) add();
    for (int i = 0; i < count; ++i) sem_post(&workers_[static_cast<std::size_t>(i)].start);
    for (int i = 0; i < count; ++i) wait(done_);
  }

 private:
  struct Worker {
    sem_t start;
    std::thread thread;
  };

  static void wait(sem_t& for_it) {
    while (sem_wait(&for_it) != 0) {  // a signal has come between
    }
  }
  void add() {
    const auto number = static_cast<int>(workers_.size());
    Worker& worker = workers_.emplace_back();
    sem_init(&worker.start, 0, 0);
    worker.thread = std::thread([this, &worker, number] {
      for (wait(worker.start); work_ != nullptr; wait(worker.start)) {
        (*work_)(number);
        sem_post(&done_);
      }
    });
  }

  const std::function<void(int)>* work_ = nullptr;
  std::deque<Worker> workers_;
  sem_t done_;
};

/// Calls the work for one group after the other.
using WorkOfThread = std::function<void(std::int64_t)>;

/// Calls, for each thread of `count` groups of `size`, make(its group, place of the group), and what that returns for every
/// group of this place, from the last to the first. Groups of different places go beside each other.
inline void each_group(std::int64_t count, int size, const GroupSizes& sizes, int left_out,
                       const std::function<WorkOfThread(ThreadGroup&, int)>& make) {
  const int places = sizes.places(size);
  std::deque<ThreadGroup::Shared> shared;
  for (int place = 0; place < places && place < count; ++place) {
    shared.emplace_back(size, std::min(size, sizes.lanes));
  }
  ThreadPool::instance().run(static_cast<int>(shared.size()) * size, [&](int thread) {
    const int place = thread / size;
    ThreadGroup group(shared[static_cast<std::size_t>(place)], thread % size, left_out);
    const WorkOfThread work = make(group, place);
    for (std::int64_t g = count - 1 - place; g >= 0; g -= places) {
      group.begin();
      work(g);
    }
  });
}

/// Kernels on host memory by threads; elements and groups from the last to the first, as no order is promised. Those that
/// go beside each other do not wait for each other before the launch is done.
template <GroupSizes kSizes>
struct ThreadLauncher {
  static constexpr int kTileThreads = kSizes.tile;

  int left_out = 0;  // see ThreadGroup

  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    ThreadPool::instance().run(kSizes.elements, [&](int thread) {
      for (std::int64_t i = count - 1 - thread; i >= 0; i -= kSizes.elements) kernel(i);
    });
  }

  template <typename Kernel>
  void groups(std::int64_t count, int threads, const Kernel& kernel) const {
    each_group(count, std::min(threads, kSizes.most), kSizes, left_out,
               [&](ThreadGroup& group, int) {
                 return [&kernel, &group](std::int64_t g) { kernel(group, g); };
               });
  }

  template <typename Kernel>
  void tiles(std::int64_t count, const Kernel& kernel) const {
    static_assert(Kernel::kThreads == kTileThreads);
    using Shared = typename Kernel::Shared;
    const auto memories =
        std::make_unique<Shared[]>(static_cast<std::size_t>(kSizes.places(kSizes.tile)));
    each_group(count, kSizes.tile, kSizes, left_out, [&](ThreadGroup& group, int place) {
      Shared& shared = memories[static_cast<std::size_t>(place)];
      // On a device every group has memory of its own: what is done to it in between is no work of the kernel.
      const auto memory = std::make_shared<kernels::SharedMemory>(shared);
      return [&kernel, &group, &shared, memory](std::int64_t g) {
        group.wait();
        if (group.rank() == 0) kernels::SharedMemory::forget(shared);
        group.wait();
        kernel(group, g, shared);
      };
    });
  }
};

}  // namespace fedhpc::test
