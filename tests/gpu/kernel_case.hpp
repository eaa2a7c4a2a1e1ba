#pragma once

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/tensor.hpp"

#include "gpu/kernels/all_kernels.hpp"

namespace fedhpc::test {

/// Where kernels run: compiled for the host, on host memory, by one thread or by groups of threads;
/// or the device's own (the stand-in where FEDHPC_GPU_MODULE says so).
enum class Machine { Host, Threads, Device };

/// Columns, or samples, with nothing between them; with gaps that leave every one aligned; with
/// gaps that leave none aligned.
enum class Gaps { None, Even, Odd };
constexpr Gaps kAllGaps[] = {Gaps::None, Gaps::Even, Gaps::Odd};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kUntouched = -77;  // what stands in the gaps

class KernelTest : public ::testing::TestWithParam<std::tuple<Machine, at::ScalarType>> {
 protected:
  void SetUp() override;

  AllKernels& kernels() const { return *kernels_; }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  DType real() const { return type() == at::kDouble ? DType::Float64 : DType::Float32; }
  bool on_device() const { return std::get<0>(GetParam()) == Machine::Device; }
  /// How far results may be from a reference's, relative to the larger of 1 and their size.
  double tolerance() const { return type() == at::kDouble ? 1e-12 : 2e-5; }

  /// Host values where the kernels find them.
  Tensor placed(const Tensor& values) const {
    return on_device() ? values.to(at::Device(at::kCUDA)) : values.clone();
  }
  Tensor random(std::vector<std::int64_t> shape) const {
    return at::randn(shape, at::TensorOptions(at::kDouble)).to(type());
  }
  Tensor longs(const std::vector<std::int64_t>& values) const {
    return placed(at::tensor(values, at::kLong));
  }
  Tensor doubles(const std::vector<double>& values) const {
    return placed(at::tensor(values, at::kDouble));
  }

  void expect_close(const Tensor& actual, const Tensor& expected, double factor = 1) const;

 private:
  AllKernels* kernels_ = nullptr;
};

/// Values [C, B, width] or [C, P] in memory of the kernels, with gaps. Images of so many channels
/// lie by channels, with gaps between these.
class Placed {
 public:
  Placed(const Tensor& values, Gaps gaps, at::Device device, std::int64_t channels = 0);

  DeviceStack stack() const {
    if (batch_ > 0) {
      return {.data = start(),
              .clients = sizes_[0],
              .batch = batch_,
              .width = sizes_[1] * sizes_[2] / batch_,
              .client_stride = strides_[0],
              .sample_stride = sizes_[2] / batch_,
              .channel_stride = strides_[1]};
    }
    return {.data = start(),
            .clients = sizes_[0],
            .batch = sizes_[1],
            .width = sizes_[2],
            .client_stride = strides_[0],
            .sample_stride = strides_[1]};
  }
  DeviceColumns columns() const { return {start(), strides_[0]}; }
  DeviceMatrices matrices(bool transposed = false) const {
    return {start(), strides_[0], strides_[1], transposed};
  }

  /// The values, copied to the host, after a look at the gaps.
  Tensor values() const;

 private:
  void* start() const {
    return static_cast<char*>(memory_.data_ptr()) +
           first_ * static_cast<std::int64_t>(memory_.itemsize());
  }
  Tensor within(const Tensor& memory) const { return memory.as_strided(sizes_, strides_, first_); }

  std::vector<std::int64_t> sizes_;  // by channels: [C, channels, B places]
  std::vector<std::int64_t> strides_;
  std::int64_t batch_ = 0;  // by channels: B
  std::int64_t first_ = 0;
  Tensor memory_;
};

inline at::Device place_of(bool on_device) { return at::Device(on_device ? at::kCUDA : at::kCPU); }

std::string kernel_case_name(const ::testing::TestParamInfo<KernelTest::ParamType>& info);

#define FEDHPC_KERNEL_TESTS(Suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(                                                                   \
      , Suite,                                                                                \
      ::testing::Combine(::testing::Values(Machine::Host, Machine::Threads, Machine::Device), \
                         ::testing::Values(at::ScalarType::Float, at::ScalarType::Double)),   \
      kernel_case_name)

}  // namespace fedhpc::test
