#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "standin/device_memory.hpp"
#include "standin/late_streams.hpp"
#include "standin/meter.hpp"

namespace fedhpc::standin {

/// What was enqueued while it was captured.
struct Recording {
  std::shared_ptr<BlockPool> pool = std::make_shared<BlockPool>();
  std::vector<std::function<void()>> works;
  std::shared_ptr<Meter::Table> costs = std::make_shared<Meter::Table>();
};

/// The device of this process: every operation, whether LibTorch's or a kernel of the table, is
/// enqueued here, on the calling thread's current stream. What is enqueued is done at once, or, with
/// FEDHPC_STANDIN_LATE=SEED, later (late_streams.hpp).
class Device {
 public:
  static Device& get();

  /// Cards of this process (FEDHPC_STANDIN_CARDS, 1 if that is not set).
  static int cards();
  /// The calling thread's, as LibTorch names it.
  c10::Device current() const;
  void use_(c10::DeviceIndex card);
  /// The calling thread's current stream of a card.
  static c10::StreamId& stream_of(c10::DeviceIndex card);
  StreamKey stream() const { return {current().index(), stream_of(current().index())}; }

  /// Whether work is done. Where FEDHPC_STANDIN_DRY is set it is counted alone, but for copies
  /// between the host and the device, so that sizes cost no time.
  static bool computes();
  /// Counts what is enqueued.
  Meter& meter() { return meter_; }

  bool is_capturing() const { return recording_ != nullptr; }
  /// Whether work that is enqueued now is done later.
  bool is_late() const { return late_ && !late_->is_running(); }
  /// Does the work, or records it; `what` says what it is.
  void enqueue(const std::string& what, std::function<void()> work);
  /// Does the work, before which all else has been done that it needs.
  static void do_now(const std::string& what, const std::function<void()>& work);
  /// Does the work on a stream, behind all that is there; never records it.
  void enqueue(StreamKey stream, std::function<void()> work);
  std::shared_ptr<Mark> mark(StreamKey stream);
  void wait(StreamKey stream, const std::shared_ptr<Mark>& mark);
  void get_on() {
    if (late_) late_->get_on();
  }

  /// The host waits for the current stream, another, a mark or all of the device, because of
  /// `what`: counted; throws where it may not.
  void wait(const std::string& what) { wait(what, stream()); }
  void wait(const std::string& what, StreamKey stream);
  void wait(const std::string& what, const Mark& mark);
  void wait_for_all(const std::string& what);
  std::int64_t waits() const { return waits_; }
  void note_copy_to_host(std::size_t bytes) { to_host_ += static_cast<std::int64_t>(bytes); }
  std::int64_t bytes_to_host() const { return to_host_; }
  void forbid_waiting(bool forbidden) { waiting_is_forbidden_ = forbidden; }

  /// Records what `work` enqueues, none of which is done.
  std::shared_ptr<Recording> capture(const std::function<void()>& work);

 private:
  Device();
  void count_wait(const std::string& what);

  std::unique_ptr<LateStreams> late_;
  Meter meter_;
  std::shared_ptr<Recording> recording_;
  std::atomic<std::int64_t> waits_ = 0;
  std::atomic<std::int64_t> to_host_ = 0;
  std::atomic<bool> waiting_is_forbidden_ = false;
};

}  // namespace fedhpc::standin
