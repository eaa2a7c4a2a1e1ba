#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "standin/device_memory.hpp"
#include "standin/meter.hpp"

namespace fedhpc::standin {

/// What was enqueued while it was captured.
struct Recording {
  std::shared_ptr<BlockPool> pool = std::make_shared<BlockPool>();
  std::vector<std::function<void()>> works;
  std::shared_ptr<Meter::Table> costs = std::make_shared<Meter::Table>();
};

/// The device of this process: every operation, whether LibTorch's or a kernel of the table, is
/// enqueued here. What is enqueued is done at once, after what the collectives have left to do on
/// the stream of tensors.
class Device {
 public:
  static Device& get();

  /// Cards of this process (FEDHPC_STANDIN_CARDS, 1 if that is not set).
  static int cards();
  /// The calling thread's, as LibTorch names it.
  c10::Device current() const;
  void use_(c10::DeviceIndex card);

  /// Whether work is done. Where FEDHPC_STANDIN_DRY is set it is counted alone, but for copies
  /// between the host and the device, so that sizes cost no time.
  static bool computes();
  /// Counts what is enqueued.
  Meter& meter() { return meter_; }

  bool is_capturing() const { return recording_ != nullptr; }
  /// Does the work, or records it; `what` says what it is.
  void enqueue(const std::string& what, std::function<void()> work);
  /// Ends what was enqueued by others on the stream of tensors.
  void get_on() {
    if (get_on_) get_on_();
  }
  void get_on_by(std::function<void()> work) { get_on_ = std::move(work); }

  /// The host waits for the device, because of `what`: counted; throws where it may not.
  void wait(const std::string& what);
  std::int64_t waits() const { return waits_; }
  void forbid_waiting(bool forbidden) { waiting_is_forbidden_ = forbidden; }

  /// Records what `work` enqueues, none of which is done.
  std::shared_ptr<Recording> capture(const std::function<void()>& work);

 private:
  std::function<void()> get_on_;
  Meter meter_;
  std::shared_ptr<Recording> recording_;
  std::atomic<std::int64_t> waits_ = 0;
  std::atomic<bool> waiting_is_forbidden_ = false;
};

}  // namespace fedhpc::standin
