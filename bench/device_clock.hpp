#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/products.hpp"

#include "timing.hpp"

namespace fedhpc::bench {

/// Seconds that work on a device takes: from when all before it is done to when it is done. On the
/// host, CPU time of this process.
class DeviceClock {
 public:
  explicit DeviceClock(at::Device device) : device_(device) {}

  void finish() const {
    if (device_.is_cuda()) {
      c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    }
  }

  template <typename Work>
  double seconds_of(const Work& work) const {
    finish();
    const double begin = now();
    work();
    finish();
    return now() - begin;
  }

 private:
  double now() const {
    if (device_.is_cpu()) return cpu_seconds();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  at::Device device_;
};

/// The most multiplications and additions a second that large float32 products reach here: side x
/// side times side x side, by what the project's layers call.
inline double measured_peak(at::Device device, Precision precision, std::int64_t side) {
  // Random: a card computes zeros and ones faster, for they take less power.
  const Tensor a = at::rand({1, side, side}, at::kFloat).to(device);
  const Tensor b = at::rand({1, side, side}, at::kFloat).to(device);
  const Tensor result = at::empty_like(a);
  constexpr int kTurns = 8;
  constexpr int kProducts = 4;
  const auto products = [&] {
    for (int i = 0; i < kProducts; ++i) {
      batched_product(at::kFloat, 1, 1, matrices_of(a), Transpose::No, matrices_of(b),
                      Transpose::No, 0, matrices_of(result), {precision});
    }
  };
  const DeviceClock clock(device);
  products();
  double seconds = clock.seconds_of(products);
  for (int turn = 1; turn < kTurns; ++turn) {
    seconds = std::min(seconds, clock.seconds_of(products));
  }
  const double n = static_cast<double>(side);
  return kProducts * 2 * n * n * n / seconds;
}

}  // namespace fedhpc::bench
