#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/fedbabu_reference.hpp"

namespace fedhpc::testing {
namespace {

using reference::Part;

Keys with_fedbabu(Keys changes, const std::string& fine_tune = "all") {
  changes.insert({{"algorithm.name", "fedbabu"}, {"algorithm.fine_tune", fine_tune}});
  return tiny_keys(changes);
}

Part tuned_by(const Keys& keys) {
  const std::string part = keys.at("algorithm.fine_tune");
  return part == "all" ? Part::All : part == "head" ? Part::Head : Part::Body;
}

class FedBABUReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedBABUReference, EqualsPlainLoop) {
  for (const std::string fine_tune : {"all", "head", "body"}) {
    SCOPED_TRACE(fine_tune);
    const Keys keys = with_fedbabu(GetParam().changes, fine_tune);
    const reference::FedBABUOutcome expected =
        reference::fedbabu(reference::make_problem(keys), tuned_by(keys));
    expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, FedBABUReference, ::testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, FedBABUReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

/// The columns of the head, or all others, of `models` [N P], as [N, Q].
Tensor columns_of(const Keys& keys, const Tensor& models, const Columns& columns) {
  const reference::Problem problem = reference::make_problem(keys);
  return RowPart(problem.layout, columns)
      .of({models.reshape({-1, problem.layout->size()}), problem.layout})
      .values;
}

TEST(FedBABU, TheHeadIsTheInitialOneUntilItIsTuned) {
  for (const Keys& changes : {Keys{{"train.weight_decay", "0.05"}}, with_batch_norm()}) {
    for (const std::string fine_tune : {"all", "head", "body"}) {
      const Keys keys = with_fedbabu(changes, fine_tune);
      const TinyResult result = run(keys, *world_communicator(60));
      const Tensor initial = columns_of(keys, result.initial, kHead);
      EXPECT_TRUE(columns_of(keys, result.global, kHead).equal(initial));
      EXPECT_GT(
          distance(columns_of(keys, result.global, kBody), columns_of(keys, result.initial, kBody)),
          1e-3);
      const Tensor heads = columns_of(keys, result.personal, kHead);
      const Tensor bodies = columns_of(keys, result.personal, kBody);
      EXPECT_EQ(heads[0].equal(initial[0]), fine_tune == "body");
      EXPECT_EQ(bodies[0].equal(columns_of(keys, result.global, kBody)[0]), fine_tune == "head");
    }
  }
}

TEST(FedBABU, FineTuningChangesNoRound) {
  const auto world = world_communicator(60);
  const TinyResult all = run(with_fedbabu({}), *world);
  EXPECT_TRUE(run(with_fedbabu({}, "head"), *world).global.equal(all.global));
}

TEST(FedBABU, BooksBodiesOnly) {
  const auto world = world_communicator(60);
  for (const Keys& changes : {Keys{}, with_batch_norm()}) {
    Keys keys = with_fedbabu(changes);
    keys.insert({{"topology.participation", "0.6"}, {"algorithm.codec", "fp16"}});
    keys["run.dtype"] = "float32";
    const TinyResult result = run(keys, *world);
    if (world->rank() != 0) continue;
    const auto body = static_cast<double>(columns_of(keys, result.global, kBody).size(1));
    EXPECT_LT(body, static_cast<double>(result.global.numel()));
    EXPECT_EQ(bytes_down(result.metrics.back()), 4 * 4 * body);
    EXPECT_EQ(bytes_up(result.metrics.back()), 4 * 2 * body);
  }
}

}  // namespace
}  // namespace fedhpc::testing
