#include <cmath>
#include <string>

#include <ATen/ops/cat.h>
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
  std::vector<Tensor> models;
  double accuracy = 0;
  double clients = 0;
  for (std::size_t k = 0; k < local.models.size(); ++k) {
    models.push_back(reference::flatten(local.models[k]));
    const auto samples = static_cast<double>(problem.tests[k].labels.size(0));
    if (samples == 0) continue;
    accuracy += reference::correct(local.models[k], problem.tests[k]) / samples;
    clients += 1;
  }
  const TinyResult result = expect_equals_reference(
      keys, {.global = at::cat(models), .train_loss = local.train_loss}, GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  EXPECT_NEAR(result.metrics.back().personal_accuracy, accuracy / clients, 1e-12);
  EXPECT_TRUE(std::isnan(result.metrics.back().global_accuracy));
  EXPECT_EQ(result.metrics.back().bytes_up_client_cloud, 0);
  EXPECT_EQ(result.metrics.back().bytes_down_client_cloud, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, LocalOnlyReference,
    ::testing::Values(ReferenceCase{"epochs", {}}, ReferenceCase{"blocks", {{"train.block", "3"}}},
                      ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
                      ReferenceCase{"some_clients",
                                    {{"topology.participation", "0.4"}, {"run.rounds", "5"}}},
                      ReferenceCase{"on_a_device_without_room", {{"store.device_budget", "0"}}}),
    name_of);

}  // namespace
}  // namespace fedhpc::testing
