// LibTorch's device CUDA on the memory of the stand-in: allocation, devices, streams and events.
#include <chrono>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "standin/device.hpp"

namespace fedhpc::standin {

namespace {

constexpr int kPoolStreams = 8;

using Event = std::shared_ptr<Mark>;

StreamKey key_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

c10::Device with_index(c10::Device device) {
  return device.has_index() ? device : Device::get().current();
}

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return Device::get().current(); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) Device::get().use_(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < Device::cards()) setDevice(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(Device::cards());
  }

  c10::Stream getStream(c10::Device device) const override {
    const c10::Device card = with_index(device);
    return c10::Stream(c10::Stream::UNSAFE, card, Device::stream_of(card.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, with_index(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    static std::atomic<c10::StreamId> next = 0;
    return c10::Stream(c10::Stream::UNSAFE, with_index(device), 1 + next++ % kPoolStreams);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Device card = with_index(stream.device());
    const c10::Stream previous = getStream(card);
    Device::stream_of(card.index()) = stream.id();
    return previous;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return has_passed(*Device::get().mark(key_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Device::get().wait("the synchronisation of a stream", key_of(stream));
  }
  void synchronizeDevice(c10::DeviceIndex /*card*/) const override {
    Device::get().wait_for_all("the synchronisation of a device");
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*card*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    of(*event) = Device::get().mark(key_of(stream));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*card*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    Device::get().wait(key_of(stream), of(event));
  }
  bool queryEvent(void* event) const override { return has_passed(*of(event)); }
  void synchronizeEvent(void* event) const override {
    Device::get().wait("the synchronisation of an event", *of(event));
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex /*card*/) const override {
    return std::chrono::duration<double, std::milli>(of(second)->time - of(first)->time).count();
  }

 private:
  static Event& of(void* event) { return *static_cast<Event*>(event); }
  static bool has_passed(const Mark& mark) {
    Device::get().get_on();
    return mark.passed;
  }
};

/// What LibTorch's part for the CPU asks of its part for CUDA.
struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return Device::cards() > 0; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*card*/) const override { return true; }
  int getNumGPUs() const override { return Device::cards(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(Device::cards());
  }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  c10::DeviceIndex getCurrentDevice() const override { return Device::get().current().index(); }
  void setCurrentDevice(c10::DeviceIndex card) const override { Device::get().use_(card); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex card) const override {
    const c10::DeviceIndex previous = getCurrentDevice();
    setCurrentDevice(card);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex card) const override {
    return exchangeDevice(card);
  }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::get().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &device_allocator(); }
  c10::Device getDeviceFromPtr(void* /*data*/) const override { return Device::get().current(); }
  // Random numbers are the host's.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*card*/) const override {
    return at::globalContext().defaultGenerator(c10::Device(c10::DeviceType::CPU));
  }
  void deviceSynchronize(c10::DeviceIndex /*card*/) const override {
    Device::get().wait_for_all("the synchronisation of a device");
  }
};

const bool kRegistered = [] {
  c10::SetAllocator(c10::DeviceType::CUDA, &device_allocator());
  c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, new GuardImpl);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
        return std::make_unique<Hooks>();
      });
  return true;
}();

}  // namespace

}  // namespace fedhpc::standin
