#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/localonly_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_localonly(Keys changes) {
  changes["algorithm.name"] = "localonly";
  return tiny_keys(changes);
}

class LocalOnlyReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(LocalOnlyReference, EqualsPlainLoop) {
  const Keys keys = with_localonly(GetParam().changes);
  const reference::Problem problem = reference::make_problem(keys);
  const reference::LocalOutcome local = reference::localonly(problem);
  const TinyResult result =
      expect_equals_reference(keys, local.models, local.train_loss, GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  EXPECT_EQ(result.metrics.back().bytes_up_client_cloud, 0);
  EXPECT_EQ(result.metrics.back().bytes_down_client_cloud, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, LocalOnlyReference,
    ::testing::Values(ReferenceCase{"epochs", {}}, ReferenceCase{"blocks", {{"train.block", "3"}}},
                      ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
                      ReferenceCase{"some_clients",
                                    {{"topology.participation", "0.4"}, {"run.rounds", "5"}}},
                      ReferenceCase{"batch_norm", with_batch_norm(), kBatchNormBound},
                      ReferenceCase{"on_a_device_without_room", {{"store.device_budget", "0"}}}),
    name_of);

}  // namespace
}  // namespace fedhpc::testing
