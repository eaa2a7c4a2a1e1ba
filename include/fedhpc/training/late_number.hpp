#pragma once

#include <cstddef>
#include <memory>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Numbers [n] of float64 that a device may still be computing. Whoever asks first waits for them,
/// so that nobody waits who does not ask.
class LateNumbers {
 public:
  explicit LateNumbers(Tensor values) : values_(std::move(values)) {}

  void wait();  ///< copies them to the host, once
  double at(std::size_t i);

 private:
  Tensor values_;
};

/// A number that is there, or will be when it is asked for.
class LateNumber {
 public:
  LateNumber(double value = 0) : value_(value) {}  // NOLINT: it is that number
  LateNumber(std::shared_ptr<LateNumbers> all, std::size_t i) : all_(std::move(all)), place_(i) {}

  operator double() const { return all_ == nullptr ? value_ : all_->at(place_); }  // NOLINT
  LateNumber& operator+=(double more) { return *this = *this + more; }

 private:
  double value_ = 0;
  std::shared_ptr<LateNumbers> all_;
  std::size_t place_ = 0;
};

}  // namespace fedhpc
