#include "standin/device.hpp"

#include <cstdlib>

#include "fedhpc/core/error.hpp"

#include "standin/standin.hpp"

namespace fedhpc::standin {

namespace {

thread_local c10::DeviceIndex current_card = 0;

}  // namespace

Device& Device::get() {
  static auto* device = new Device;
  return *device;
}

int Device::cards() {
  static const int cards = [] {
    const char* text = std::getenv("FEDHPC_STANDIN_CARDS");
    return text == nullptr ? 1 : std::atoi(text);
  }();
  return cards;
}

bool Device::computes() {
  static const bool dry = std::getenv("FEDHPC_STANDIN_DRY") != nullptr;
  return !dry;
}

c10::Device Device::current() const { return {c10::DeviceType::CUDA, current_card}; }

void Device::use_(c10::DeviceIndex card) {
  if (card < 0 || card >= cards()) throw Error(concat("there is no stand-in card ", int{card}));
  current_card = card;
}

Device::Device() {
  const char* seed = std::getenv("FEDHPC_STANDIN_LATE");
  if (seed != nullptr) late_ = std::make_unique<LateStreams>(std::strtoull(seed, nullptr, 10));
}

c10::StreamId& Device::stream_of(c10::DeviceIndex card) {
  thread_local std::vector<c10::StreamId> streams;
  streams.resize(static_cast<std::size_t>(cards()), 0);
  return streams.at(static_cast<std::size_t>(card));
}

void Device::do_now(const std::string& what, const std::function<void()>& work) {
  static const bool checks = std::getenv("FEDHPC_STANDIN_CHECK") != nullptr;
  work();
  if (checks) DeviceMemory::get().check_blocks(what.c_str());
}

void Device::enqueue(const std::string& what, std::function<void()> work) {
  std::function<void()> checked = [what, work = std::move(work)] { do_now(what, work); };
  if (recording_ != nullptr) {
    recording_->works.push_back(std::move(checked));
  } else if (is_late()) {
    late_->enqueue(stream(), std::move(checked));
  } else {
    checked();
  }
}

void Device::enqueue(StreamKey stream, std::function<void()> work) {
  late_ ? late_->enqueue(stream, std::move(work)) : work();
}

std::shared_ptr<Mark> Device::mark(StreamKey stream) {
  if (late_) return late_->mark(stream);
  return std::make_shared<Mark>(Mark{stream, true, std::chrono::steady_clock::now()});
}

void Device::wait(StreamKey stream, const std::shared_ptr<Mark>& mark) {
  if (late_) late_->wait(stream, mark);
}

void Device::count_wait(const std::string& what) {
  if (is_capturing()) throw Error(concat(what, " cannot be captured: the host waits for it"));
  if (waiting_is_forbidden_) throw Error(concat(what, " makes the host wait for the device"));
  ++waits_;
}

void Device::wait(const std::string& what, StreamKey stream) {
  count_wait(what);
  if (is_late()) late_->run(stream);
}

void Device::wait(const std::string& what, const Mark& mark) {
  count_wait(what);
  if (is_late()) late_->run_until(mark);
}

void Device::wait_for_all(const std::string& what) {
  count_wait(what);
  if (is_late()) late_->run_all();
}

std::shared_ptr<Recording> Device::capture(const std::function<void()>& work) {
  if (is_capturing()) throw Error("a capture within a capture");
  struct End {
    Device& device;
    ~End() {
      DeviceMemory::get().use_pool(nullptr);
      device.meter_.count_in(nullptr);
      if (device.late_) device.late_->hold(false);
      device.recording_ = nullptr;
    }
  } const end{*this};
  const auto recording = std::make_shared<Recording>();
  recording_ = recording;
  DeviceMemory::get().use_pool(recording->pool);
  meter_.count_in(recording->costs.get());
  if (late_) late_->hold(true);
  work();
  return recording;
}

}  // namespace fedhpc::standin

std::int64_t fedhpc_standin_bytes_to_host() {
  return fedhpc::standin::Device::get().bytes_to_host();
}
std::int64_t fedhpc_standin_waits() { return fedhpc::standin::Device::get().waits(); }
