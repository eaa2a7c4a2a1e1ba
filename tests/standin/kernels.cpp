// The table of own kernels: those of the device, compiled for the host.
#include <cstring>
#include <type_traits>

#include "fedhpc/core/error.hpp"

#include "gpu/kernels/host_launcher.hpp"
#include "gpu/kernels/table.hpp"
#include "standin/device.hpp"
#include "standin/products.hpp"
#include "standin/standin.hpp"

namespace fedhpc::standin {

namespace {

std::atomic<int> ranges = 0;
std::atomic<int> open_ranges = 0;
std::atomic<int> chosen_precision = 0;

/// A kernel or its arguments with addresses by which the host reaches the device's memory. Both are
/// plain numbers and addresses; whatever has the value of an address of the device is one, as no
/// size or stride is as large.
template <typename Kernel>
Kernel reachable(const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  constexpr std::size_t kWords = sizeof(Kernel) / sizeof(std::uintptr_t);
  std::uintptr_t words[kWords + 1] = {};
  std::memcpy(words, &kernel, sizeof kernel);
  for (std::size_t i = 0; i < kWords; ++i) {
    if (DeviceMemory::get().holds(reinterpret_cast<const void*>(words[i]))) {
      words[i] += DeviceMemory::get().shift();
    }
  }
  Kernel changed = kernel;
  std::memcpy(static_cast<void*>(&changed), words, sizeof kernel);
  return changed;
}

/// Enqueues kernels. On addresses of the host's own memory they would run here and fail on a GPU,
/// which reachable() cannot see; tests on a GPU do.
struct Launcher {
  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    Device::get().enqueue([=] { kernels::HostLauncher{}.each(count, reachable(kernel)); });
  }
  template <typename Kernel>
  void groups(std::int64_t count, int threads, const Kernel& kernel) const {
    Device::get().enqueue(
        [=] { kernels::HostLauncher{}.groups(count, threads, reachable(kernel)); });
  }
};

class Graph final : public DeviceGraph {
 public:
  explicit Graph(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
  ~Graph() override { recording_->works.clear(); }

  void replay() override {
    Device::get().enqueue([recording = recording_] {
      for (const auto& work : recording->works) work();
    });
  }

 private:
  std::shared_ptr<Recording> recording_;
};

class Table final : public KernelTable<Launcher> {
 public:
  void product(const DeviceProduct& of) override {
    if (of.count == 0) return;
    Device::get().enqueue([of] { product_on_host(reachable(of)); });
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

int fedhpc_standin_ranges() { return fedhpc::standin::ranges; }
int fedhpc_standin_open_ranges() { return fedhpc::standin::open_ranges; }
int fedhpc_standin_precision() { return fedhpc::standin::chosen_precision; }
