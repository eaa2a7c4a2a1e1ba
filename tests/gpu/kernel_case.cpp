#include "gpu/kernel_case.hpp"

#include "gpu/kernels/host_launcher.hpp"
#include "gpu/kernels/table.hpp"
#include "gpu/thread_launcher.hpp"

namespace fedhpc::test {

namespace {

/// The kernels of any device on host memory.
template <typename Launcher>
class HostTable final : public KernelTable<Launcher> {
 public:
  void product(const DeviceProduct& of) override {
    kernels::with_real(of.type, [&]<typename T>(T) {
      for (std::int64_t c = 0; c < of.count; ++c) {
        for (std::int64_t i = 0; i < of.rows; ++i) {
          for (std::int64_t j = 0; j < of.columns; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < of.inner; ++k) {
              sum += at<T>(of.a, c, i, k) * at<T>(of.b, c, k, j);
            }
            T& out = value<T>(of.result, c, i, j);
            const double kept = of.beta == 0 ? 0 : of.beta * static_cast<double>(out);
            out = static_cast<T>(kept + of.alpha * sum);
          }
        }
      }
    });
  }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>&) override { return nullptr; }
  void use_precision(Precision) override {}
  void forbid_waiting(bool) override {}
  void begin_range(const char*) override {}
  void end_range() override {}

 private:
  template <typename T>
  static T& value(const DeviceMatrices& of, std::int64_t c, std::int64_t i, std::int64_t j) {
    return static_cast<T*>(of.data)[c * of.stack_stride + i * of.row_stride + j];
  }
  template <typename T>
  static double at(const DeviceMatrices& of, std::int64_t c, std::int64_t i, std::int64_t j) {
    return static_cast<double>(of.transposed ? value<T>(of, c, j, i) : value<T>(of, c, i, j));
  }
};

template <typename Launcher>
AllKernels* host_kernels() {
  static HostTable<Launcher> table;
  return &table;
}

}  // namespace

void KernelTest::SetUp() {
  if (!on_device()) {
    kernels_ = std::get<0>(GetParam()) == Machine::Host
                   ? host_kernels<kernels::HostLauncher>()
                   : host_kernels<ThreadLauncher<kFewThreads>>();
    return;
  }
  try {
    kernels_ = &device_kernels<AllKernels>();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

void KernelTest::expect_close(const Tensor& actual, const Tensor& expected, double factor) const {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const double allowed = factor * tolerance();
  EXPECT_TRUE(at::allclose(actual.to(at::kDouble), expected.to(at::kDouble), allowed, allowed,
                           /*equal_nan=*/true))
      << actual << "\nshould be\n"
      << expected;
}

Placed::Placed(const Tensor& all, Gaps gaps, at::Device device, std::int64_t channels)
    : batch_(channels > 0 ? all.size(1) : 0) {
  const Tensor values =
      channels > 0 ? all.unflatten(2, {channels, -1}).transpose(1, 2).flatten(2) : all;
  sizes_ = values.sizes().vec();
  strides_.assign(sizes_.size(), 1);
  const std::int64_t gap = gaps == Gaps::None ? 0 : gaps == Gaps::Even ? 8 : 3;
  // With gaps that keep the alignment the distance of rows is a multiple of it as well.
  const auto room = [&](std::int64_t length) {
    return gaps == Gaps::Even ? (length + gap + 7) / 8 * 8 : length + gap;
  };
  std::int64_t size = sizes_.back();
  for (std::size_t k = sizes_.size() - 1; k-- > 0;) {
    strides_[k] = room(size);
    size = strides_[k] * sizes_[k];
  }
  first_ = gap;
  Tensor memory = at::full({first_ + size + gap}, kUntouched, values.scalar_type());
  within(memory).copy_(values);
  memory_ = device.is_cpu() ? memory : memory.to(device);
}

Tensor Placed::values() const {
  Tensor memory = memory_.is_cpu() ? memory_.clone() : memory_.cpu();
  Tensor values = within(memory).clone();
  within(memory).fill_(kUntouched);
  EXPECT_TRUE(memory.eq(kUntouched).all().item<bool>()) << "a gap was written to";
  if (batch_ == 0) return values;
  return values.unflatten(2, {batch_, -1}).transpose(1, 2).flatten(2);
}

std::string kernel_case_name(const ::testing::TestParamInfo<KernelTest::ParamType>& info) {
  const auto [machine, type] = info.param;
  const char* const name = machine == Machine::Host      ? "host"
                           : machine == Machine::Threads ? "threads"
                                                         : "device";
  return std::string(name) + (type == at::kDouble ? "_float64" : "_float32");
}

}  // namespace fedhpc::test
