#pragma once

#include <cmath>
#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/rounded_factors.hpp"

#include "gpu/kernels/memory.hpp"

// What the kernels of this folder share. They are written once: nvcc makes device code of them, any
// other compiler plain functions. There are two shapes:
//
//   void operator()(std::int64_t i) const                          one value or pack of values
//   void operator()(Group& group, std::int64_t g) const            one piece of work for a group
//
// and the second one with memory that the group shares, Kernel::Shared, as a third argument, for a
// group of just Kernel::kThreads threads, which has no sum().
//
// A group is one thread block on a device and one thread on a host. It is cut into teams (warps) of
// threads that go in step. Its sums are taken in an order that depends on nothing but its size, so
// that results are the same bits in every run:
//
//   rank(), size()            this thread's number and how many there are
//   lane(), lanes()           the same within its team
//   team(), teams()           the team's number and how many there are
//   sum(x), sum(TwoSums)      over the group, for every thread of it; float64. Every thread calls
//                             it, and what was written before is seen after
//   team_sum(x), team_max(x)  over the team
//   team_sync(), sync()       what the team, the group, has read and written before comes before
//                             what follows

// Before a loop whose reads do not depend on each other: some turns' are on their way at a time;
// before one whose number of turns is known, so that arrays it indexes stay in registers; and before
// one whose turns have work enough each, so that registers are there for more threads.
#if defined(__CUDA_ARCH__)
#define FEDHPC_UNROLL _Pragma("unroll 4")
#define FEDHPC_UNROLL_ALL _Pragma("unroll")
#define FEDHPC_NO_UNROLL _Pragma("unroll 1")
#else
#define FEDHPC_UNROLL
#define FEDHPC_UNROLL_ALL
#define FEDHPC_NO_UNROLL
#endif

namespace fedhpc::kernels {

struct TwoSums {
  double first = 0;
  double second = 0;
};

struct Split {
  std::int64_t quotient;
  std::int64_t rest;
};

/// Division by a number that a kernel knows beforehand: of dividends below 2^31 by a product and a
/// shift (Granlund and Montgomery, PLDI 1994), as a device has no instruction for it.
class Divisor {
 public:
  explicit Divisor(std::int64_t divisor) : divisor_(divisor > 0 ? divisor : 1) {
    if (divisor_ > kLimit) return;
    while ((std::int64_t{1} << shift_) < divisor_) ++shift_;
    const std::uint64_t power = std::uint64_t{1} << shift_;
    const auto d = static_cast<std::uint64_t>(divisor_);
    factor_ = static_cast<std::uint32_t>(((power - d) << 32) / d + 1);
  }

  FEDHPC_KERNEL Split operator()(std::int64_t i) const {
    if (i > kLimit || divisor_ > kLimit) return {i / divisor_, i % divisor_};
    const auto n = static_cast<std::uint32_t>(i);
    const auto high = static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * factor_) >> 32);
    const std::uint32_t quotient = (high + n) >> shift_;
    return {quotient, n - quotient * static_cast<std::uint32_t>(divisor_)};
  }

 private:
  static constexpr std::int64_t kLimit = 0x7fffffff;
  std::int64_t divisor_;
  std::uint32_t factor_ = 0;
  std::uint32_t shift_ = 0;
};

/// How many values of T make the widest access of a device.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// Samples of a stack [C, B, width], typed.
template <typename T>
struct Samples {
  T* data = nullptr;
  std::int64_t client_stride = 0;
  std::int64_t sample_stride = 0;

  Samples() = default;
  explicit Samples(const DeviceStack& stack)
      : data(static_cast<T*>(stack.data)),
        client_stride(stack.client_stride),
        sample_stride(stack.sample_stride) {}

  FEDHPC_KERNEL T* operator()(std::int64_t c, std::int64_t b) const {
    return data + c * client_stride + b * sample_stride;
  }
};

/// Images of a stack, by channels or not: the places of channel k of sample b of client c, typed.
template <typename T>
struct Images {
  T* data = nullptr;
  std::int64_t client_stride = 0;
  std::int64_t sample_stride = 0;
  std::int64_t channel_stride = 0;

  Images() = default;
  Images(const DeviceStack& stack, std::int64_t places)
      : data(static_cast<T*>(stack.data)),
        client_stride(stack.client_stride),
        sample_stride(stack.sample_stride),
        channel_stride(stack.channel_stride == 0 ? places : stack.channel_stride) {}

  FEDHPC_KERNEL T* operator()(std::int64_t c, std::int64_t b, std::int64_t k) const {
    return data + c * client_stride + b * sample_stride + k * channel_stride;
  }
};

/// Columns of rows [C, P], typed.
template <typename T>
struct Columns {
  T* data = nullptr;
  std::int64_t stride = 0;

  Columns() = default;
  explicit Columns(const DeviceColumns& columns)
      : data(static_cast<T*>(columns.data)), stride(columns.stride) {}

  FEDHPC_KERNEL T* operator()(std::int64_t c) const { return data + c * stride; }
};

/// out = keep out + scale x, not reading out with keep = 0.
template <typename T>
struct Sink {
  Columns<T> out;
  T scale;
  T keep;

  explicit Sink(const DeviceSink& sink)
      : out(sink.out), scale(static_cast<T>(sink.scale)), keep(static_cast<T>(sink.keep)) {}

  FEDHPC_KERNEL void write(T x, T& to) const {
    to = keep == T{0} ? scale * x : keep * to + scale * x;
  }
};

/// The same with x and what is kept in float64; nothing where there is nowhere to write.
template <typename T>
struct SumSink {
  Columns<T> out;
  double scale;
  double keep;

  explicit SumSink(const DeviceSink& sink) : out(sink.out), scale(sink.scale), keep(sink.keep) {}

  FEDHPC_KERNEL void write(double x, std::int64_t c, std::int64_t column) const {
    if (out.data == nullptr) return;
    T& to = out(c)[column];
    const double kept = keep == 0 ? 0 : keep * static_cast<double>(to);
    to = static_cast<T>(kept + scale * x);
  }
};

/// Element i of [clients, batch, width].
struct StackIndex {
  Divisor batch;
  Divisor width;

  explicit StackIndex(std::int64_t samples, std::int64_t values) : batch(samples), width(values) {}

  struct At {
    std::int64_t client;
    std::int64_t sample;
    std::int64_t value;
  };
  FEDHPC_KERNEL At operator()(std::int64_t i) const {
    const Split by_width = width(i);
    const Split by_batch = batch(by_width.quotient);
    return {by_batch.quotient, by_batch.rest, by_width.rest};
  }
};

FEDHPC_KERNEL std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
FEDHPC_KERNEL std::int64_t larger(std::int64_t a, std::int64_t b) { return a < b ? b : a; }

}  // namespace fedhpc::kernels
