#include "fedhpc/core/stopwatch.hpp"

#include <exception>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace fedhpc {

struct Stopwatch::Lap {
  c10::Event begin{c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT};
  c10::Event end{c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT};
};

namespace {

void record(c10::Event& event) {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  event.record(cuda.getStream(cuda.getDevice()));
}

}  // namespace

Stopwatch::Stopwatch() = default;
Stopwatch::~Stopwatch() = default;
Stopwatch::Stopwatch(Stopwatch&&) noexcept = default;
Stopwatch& Stopwatch::operator=(Stopwatch&&) noexcept = default;

void Stopwatch::use_device_events() { by_events_ = true; }

void Stopwatch::start() {
  if (running_++ > 0) return;
  if (by_events_) {
    laps_.push_back(std::make_unique<Lap>());
    record(laps_.back()->begin);
  } else {
    begin_ = Clock::now();
  }
}

void Stopwatch::stop() {
  if (--running_ > 0) return;
  if (by_events_) {
    try {
      record(laps_.back()->end);
    } catch (const std::exception&) {
      laps_.pop_back();  // what has broken the device is on its way to be reported
    }
  } else {
    total_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }
}

void Stopwatch::read_laps() const {
  constexpr double kMillisecond = 1e-3;
  for (const std::unique_ptr<Lap>& lap : laps_) {
    lap->end.synchronize();
    total_ += kMillisecond * lap->begin.elapsedTime(lap->end);
  }
  laps_.clear();
}

double Stopwatch::seconds() const {
  read_laps();
  return total_;
}

double Stopwatch::lap() {
  const double seconds = this->seconds();
  total_ = 0;
  return seconds;
}

}  // namespace fedhpc
