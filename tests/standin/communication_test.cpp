#include <cstdlib>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"

#include "fixtures/standin.hpp"

namespace fedhpc {
namespace {

/// Communicators on the stand-in: by its NCCL, or by the host where ranks share a card.
class StandinCommunication : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  StandinCommunication() {
    Standin::get();
    run_log().set_rank(world_communicator(60)->rank(), host_name());
  }

  std::unique_ptr<Communicator> make() {
    return device_communicator(world_communicator(60), gpu_library());
  }
};

TEST_P(StandinCommunication, CollectivesGoOnWithTensors) {
  ::testing::internal::CaptureStderr();
  const auto world = make();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const bool shared = std::getenv("FEDHPC_STANDIN_SHARE") != nullptr && world->size() > 1;
  EXPECT_EQ(said.find("share a GPU") != std::string::npos, shared && world->rank() == 0) << said;
  const auto options = at::TensorOptions(GetParam()).device(at::kCUDA);
  for (int i = 0; i < 3; ++i) {
    Tensor values = at::arange(1000, options);
    world->sum_(values);
    const Tensor twice = values.mul(2);  // after the sum, for which nobody waits
    values.zero_();
    EXPECT_TRUE(twice.cpu().equal(at::arange(1000, GetParam()).mul(2 * world->size())));
  }
  const auto part = world->split(world->rank() % 2);
  Tensor ones = at::full({7}, 1, options);
  part->sum_(ones);
  EXPECT_TRUE(ones.cpu().equal(at::full({7}, part->size(), GetParam())));
  EXPECT_EQ(part->all_gather(ones).size(0), 7 * part->size());
}

INSTANTIATE_TEST_SUITE_P(Types, StandinCommunication,
                         ::testing::Values(at::kFloat, at::kDouble, at::kLong));

}  // namespace
}  // namespace fedhpc
