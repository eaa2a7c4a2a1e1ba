#include "fedhpc/comm/gpu_library.hpp"

#include <chrono>
#include <dlfcn.h>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/build_info.hpp"

#include "comm/nccl_alone.hpp"
#include "comm/nccl_communicator.hpp"

namespace fedhpc {
namespace {

/// The message with which `work` ends.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GpuLibrary, IsTheOneThisBuildNames) {
  if (build_info().nccl == "no nccl") {
    EXPECT_EQ(error_of([] { gpu_library(); }), "this build has no CUDA");
    return;
  }
  EXPECT_EQ(gpu_library().version(), build_info().nccl);
  EXPECT_EQ(&gpu_library(), &gpu_library());
}

TEST(GpuLibrary, SaysWhyThereIsNoDevice) {
  if (build_info().nccl == "no nccl") GTEST_SKIP() << "this build has no CUDA";
  int devices = 0;
  const std::string text = error_of([&] { devices = gpu_library().devices(); });
  EXPECT_EQ(devices == 0, text.rfind("a look for CUDA devices failed: ", 0) == 0) << text;
}

/// NCCL on this machine's cards. LibTorch's CUDA kernels, which tensors need, are no part of a
/// build; they are taken where the dynamic linker finds them.
class NcclOnACard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (build_info().nccl == "no nccl") GTEST_SKIP() << "this build has no CUDA";
    const std::string text = error_of([] { gpu_library().devices(); });
    if (!text.empty()) GTEST_SKIP() << text;
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) GTEST_SKIP() << dlerror();
  }

  static std::unique_ptr<Communicator> make(double timeout_seconds) {
    std::unique_ptr<Communicator> world = world_communicator(timeout_seconds);
    if (world->size() == 1) return nccl_alone(std::move(world), gpu_library());
    return device_communicator(std::move(world), gpu_library());
  }
};

TEST_F(NcclOnACard, SumsAndSplits) {
  const auto world = make(60);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
    Tensor values = at::arange(1000, at::TensorOptions(type).device(at::kCUDA));
    world->sum_(values);
    EXPECT_TRUE(values.cpu().equal(at::arange(1000, type).mul(world->size())));
    for (const int parts : {1, 2, world->size()}) {  // a rank alone needs no NCCL
      const auto part = world->split(world->rank() % parts);
      Tensor ones = at::full({7}, 1, at::TensorOptions(type).device(at::kCUDA));
      part->sum_(ones);
      EXPECT_TRUE(ones.cpu().equal(at::full({7}, part->size(), type)));
      const Tensor all = part->all_gather(ones);
      EXPECT_TRUE(all.cpu().equal(at::full({7 * part->size()}, part->size(), type)));
    }
  }
}

TEST_F(NcclOnACard, IsNoErrorOfTheNextKernelWhileItTakesItsTime) {
  const auto world = make(60);
  const at::TensorOptions on_card = at::TensorOptions(at::kFloat).device(at::kCUDA);
  Tensor values = at::ones({1 << 24}, on_card);
  for (int time = 0; time < 20; ++time) {
    world->sum_(values);  // a look at it before it has ended comes to nothing
    values.div_(world->size());
  }
  EXPECT_EQ(values.sum().item<double>(), 1 << 24);
}

TEST_F(NcclOnACard, IsGivenUpWhenItsTimeIsOver) {
  const auto world = make(3);
  if (dynamic_cast<NcclCommunicator*>(world.get()) == nullptr) {
    GTEST_SKIP() << "not started by mpirun with a card for each rank";
  }
  const at::TensorOptions on_card = at::TensorOptions(at::kDouble).device(at::kCUDA);
  Tensor values = at::ones({10}, on_card);
  world->sum_(values);
  // The sum waits for what fills its tensor: products of ten seconds.
  Tensor factor = at::zeros({8192, 8192}, on_card);
  const auto seconds_of = [&](int products) {
    const auto begin = std::chrono::steady_clock::now();
    for (int time = 0; time < products; ++time) factor = at::mm(factor, factor);
    factor[0][0].item();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  seconds_of(1);  // it makes cuBLAS ready
  const int products = static_cast<int>(4 * 10 / seconds_of(4)) + 1;
  for (int time = 0; time < products; ++time) factor = at::mm(factor, factor);
  values = factor.view(-1).narrow(0, 0, 10);
  const std::string text = error_of([&] { world->sum_(values); });
  EXPECT_NE(text.find("a sum over ranks"), std::string::npos) << text;
  EXPECT_NE(error_of([&] { world->sum_(values); }).find("given up"), std::string::npos);
  EXPECT_NE(error_of([&] { world->split(0); }).find("given up"), std::string::npos);
}

}  // namespace
}  // namespace fedhpc
