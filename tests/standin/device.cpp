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

void Device::enqueue(const std::string& what, std::function<void()> work) {
  static const bool checks = std::getenv("FEDHPC_STANDIN_CHECK") != nullptr;
  if (checks) {
    work = [what, work = std::move(work)] {
      work();
      DeviceMemory::get().check_blocks(what.c_str());
    };
  }
  if (recording_ != nullptr) {
    recording_->works.push_back(std::move(work));
    return;
  }
  get_on();
  work();
}

void Device::wait(const std::string& what) {
  if (is_capturing()) throw Error(concat(what, " cannot be captured: the host waits for it"));
  if (waiting_is_forbidden_) throw Error(concat(what, " makes the host wait for the device"));
  ++waits_;
  get_on();
}

std::shared_ptr<Recording> Device::capture(const std::function<void()>& work) {
  if (is_capturing()) throw Error("a capture within a capture");
  get_on();
  struct End {
    Device& device;
    ~End() {
      DeviceMemory::get().use_pool(nullptr);
      device.meter_.count_in(nullptr);
      device.recording_ = nullptr;
    }
  } const end{*this};
  const auto recording = std::make_shared<Recording>();
  recording_ = recording;
  DeviceMemory::get().use_pool(recording->pool);
  meter_.count_in(recording->costs.get());
  work();
  return recording;
}

}  // namespace fedhpc::standin

std::int64_t fedhpc_standin_waits() { return fedhpc::standin::Device::get().waits(); }
