#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <c10/core/Event.h>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Copies numbers from a device to the host, behind what has been enqueued so far. Asking for one
/// waits until they have come, not for what is enqueued later.
class DeferredNumbers {
 public:
  /// `values` are [n] float64, on a device.
  explicit DeferredNumbers(const Tensor& values);

  void wait();
  double at(std::size_t i);

 private:
  Tensor here_;                       // pinned
  std::optional<c10::Event> coming_;  // none: they are here
};

/// A number that is there, or comes when it is asked for.
class DeferredNumber {
 public:
  DeferredNumber(double value = 0) : value_(value) {}  // NOLINT: it is that number
  DeferredNumber(std::shared_ptr<DeferredNumbers> all, std::size_t i)
      : all_(std::move(all)), place_(i) {}

  operator double() const { return all_ == nullptr ? value_ : all_->at(place_); }  // NOLINT
  void wait() const {
    if (all_ != nullptr) all_->wait();
  }
  DeferredNumber& operator+=(double more) { return *this = *this + more; }

 private:
  double value_ = 0;
  std::shared_ptr<DeferredNumbers> all_;
  std::size_t place_ = 0;
};

}  // namespace fedhpc
