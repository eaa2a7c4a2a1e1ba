// The table of own kernels: those of the device, compiled for the host.
#include <cstring>
#include <sys/mman.h>
#include <type_traits>
#include <typeinfo>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"

#include "gpu/kernels/host_launcher.hpp"
#include "standin/device.hpp"
#include "standin/metered_table.hpp"
#include "standin/products.hpp"
#include "standin/standin.hpp"

namespace fedhpc::standin {

namespace {

std::atomic<int> ranges = 0;
std::atomic<std::int64_t> replays = 0;
std::atomic<int> open_ranges = 0;
std::atomic<int> chosen_precision = 0;
std::shared_ptr<const Meter::Table> costs_of_replay;

/// Whether a number can only be an address of the host that a GPU does not reach.
bool is_of_host(std::uintptr_t number) {
  constexpr std::uintptr_t kLowest = 0x500000000000;
  constexpr std::uintptr_t kHighest = 0x7fffffffffff;
  if (number < kLowest || number > kHighest) return false;
  const std::uintptr_t page = number & ~std::uintptr_t{4095};
  unsigned char ignored = 0;
  if (mincore(reinterpret_cast<void*>(page), 1, &ignored) != 0) return false;  // nothing is there
  return !PinnedMemory::get().holds(reinterpret_cast<const void*>(number));
}

// What lies between members may be left of anything, also of an address.
template <typename T>
void clear_padding([[maybe_unused]] T* value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(value);
#endif
}

/// A kernel or its arguments with addresses by which the host reaches the device's memory. Both are
/// plain numbers and addresses; whatever has the value of an address of the device is one, as no
/// size or stride is as large. Throws if there is an address of the host among them.
template <typename Kernel>
Kernel reachable(const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  constexpr std::size_t kWords = sizeof(Kernel) / sizeof(std::uintptr_t);
  Kernel changed = kernel;
  clear_padding(&changed);
  std::uintptr_t words[kWords + 1] = {};
  std::memcpy(words, static_cast<const void*>(&changed), sizeof changed);
  for (std::size_t i = 0; i < kWords; ++i) {
    if (DeviceMemory::get().holds(reinterpret_cast<const void*>(words[i]))) {
      words[i] += DeviceMemory::get().shift();
    } else if (kFindsAddressesOfHost && is_of_host(words[i])) {
      throw Error("a kernel of the device is given an address of the host");
    }
  }
  std::memcpy(static_cast<void*>(&changed), words, sizeof kernel);
  return changed;
}

struct Launcher {
  static constexpr int kTileThreads = kernels::HostLauncher::kTileThreads;

  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    launch(kernel, [count](const Kernel& there) { kernels::HostLauncher{}.each(count, there); });
  }
  template <typename Kernel>
  void groups(std::int64_t count, int threads, const Kernel& kernel) const {
    launch(kernel, [count, threads](const Kernel& there) {
      kernels::HostLauncher{}.groups(count, threads, there);
    });
  }
  template <typename Kernel>
  void tiles(std::int64_t count, const Kernel& kernel) const {
    launch(kernel, [count](const Kernel& there) { kernels::HostLauncher{}.tiles(count, there); });
  }

 private:
  template <typename Kernel, typename Run>
  static void launch(const Kernel& kernel, const Run& run) {
    Device& device = Device::get();
    const char* name = typeid(Kernel).name();
    if (!Device::computes()) return device.meter().launch(name);
    device.enqueue(name, [run, there = reachable(kernel)] { run(there); });
  }
};

class Graph final : public DeviceGraph {
 public:
  explicit Graph(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
  ~Graph() override {
    Device& device = Device::get();
    device.enqueue(device.stream(), [recording = recording_] { recording->works.clear(); });
  }

  void replay() override {
    ++replays;
    costs_of_replay = recording_->costs;
    Device::get().enqueue("a graph", [recording = recording_] {
      for (const auto& work : recording->works) work();
    });
  }

 private:
  std::shared_ptr<Recording> recording_;
};

class Table final : public MeteredTable<Launcher> {
 public:
  void multiply(const DeviceProduct& of) override {
    if (of.count == 0) return;
    if (!Device::computes()) return Device::get().meter().launch("product");
    Device::get().enqueue("a product", [product = reachable(of)] { product_on_host(product); });
  }

  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    return std::make_unique<Graph>(Device::get().capture(work));
  }
  void use_precision(Precision precision) override {
    chosen_precision = static_cast<int>(precision);
  }
  void forbid_waiting(bool forbidden) override { Device::get().forbid_waiting(forbidden); }
  void begin_range(const char* /*name*/) override {
    ++ranges;
    ++open_ranges;
  }
  void end_range() override {
    if (--open_ranges < 0) throw Error("a range ends that has not begun");
  }
};

}  // namespace

}  // namespace fedhpc::standin

/// What device_kernels() looks for in a module.
extern "C" fedhpc::DeviceKernels* fedhpc_device_kernels() {
  static auto* table = new fedhpc::standin::Table;
  return table;
}

std::int64_t fedhpc_standin_replays() { return fedhpc::standin::replays; }
int fedhpc_standin_ranges() { return fedhpc::standin::ranges; }
int fedhpc_standin_open_ranges() { return fedhpc::standin::open_ranges; }
int fedhpc_standin_precision() { return fedhpc::standin::chosen_precision; }

void fedhpc_standin_costs(int of_step, FedhpcStandinCost take, void* to) {
  using namespace fedhpc::standin;
  Meter::Table& outside = Device::get().meter().outside();
  for (const auto& [name, spent] : of_step != 0 ? *costs_of_replay : outside) {
    take(to, name.c_str(), spent.launches, spent.cost.bytes, spent.cost.operations);
  }
  if (of_step == 0) outside.clear();
}
