#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/part_averaging_reference.hpp"

// FedPer, LG-FedAvg and FedBN: some columns are averaged, the others are the clients' own.
namespace fedhpc::testing {
namespace {

Keys keys_of(const std::string& algorithm, Keys changes) {
  changes.insert({"algorithm.name", algorithm});
  return tiny_keys(changes);
}

std::set<std::size_t> own_places(const Keys& keys, const reference::Problem& problem) {
  const std::int64_t layers = std::stoll(own_value(keys, "layers", "1"));
  if (keys.at("algorithm.name") == "fedper") return reference::top_layers(problem, layers);
  if (keys.at("algorithm.name") == "fedbn") return reference::batch_norm(problem);
  return reference::below_top_layers(problem, layers);
}

void expect_equals_plain_loop(const std::string& algorithm, const ReferenceCase& one) {
  const Keys keys = keys_of(algorithm, one.changes);
  const reference::Problem problem = reference::make_problem(keys);
  const std::set<std::size_t> own = own_places(keys, problem);
  ASSERT_GT(own.size(), 0U);
  ASSERT_LT(own.size(), problem.initial.size());
  const reference::PartOutcome expected = reference::part_averaging(problem, own);
  ASSERT_GT(distance(flatten_all(expected.personal),
                     flatten_all(reference::part_averaging(problem, {}).personal)),
            1e-3)
      << "the part matters";
  expect_equals_reference(keys, expected.personal, expected.train_loss, one.single_bound);
}

std::vector<ReferenceCase> cases_of_layers() {
  std::vector<ReferenceCase> cases = all_cases();
  for (const ReferenceCase& one : falling_lr_cases()) cases.push_back(one);
  cases.push_back({"two_layers", {{"model.hidden", "6,5"}, {"algorithm.layers", "2"}}});
  cases.push_back({"two_layers_batch_norm",
                   with_batch_norm({{"algorithm.layers", "2"}, {"train.block", "3"}}),
                   kBatchNormBound});
  return cases;
}

std::vector<ReferenceCase> cases_with_batch_norm() {
  std::vector<ReferenceCase> cases;
  for (const ReferenceCase& one : all_cases()) {
    if (one.name.starts_with("batch_norm")) cases.push_back(one);
  }
  return cases;
}

class FedPerReference : public ::testing::TestWithParam<ReferenceCase> {};
TEST_P(FedPerReference, EqualsPlainLoop) { expect_equals_plain_loop("fedper", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Settings, FedPerReference, ::testing::ValuesIn(cases_of_layers()),
                         name_of);

class LGFedAvgReference : public ::testing::TestWithParam<ReferenceCase> {};
TEST_P(LGFedAvgReference, EqualsPlainLoop) { expect_equals_plain_loop("lg_fedavg", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Settings, LGFedAvgReference, ::testing::ValuesIn(cases_of_layers()),
                         name_of);

class FedBNReference : public ::testing::TestWithParam<ReferenceCase> {};
TEST_P(FedBNReference, EqualsPlainLoop) { expect_equals_plain_loop("fedbn", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Settings, FedBNReference, ::testing::ValuesIn(cases_with_batch_norm()),
                         name_of);

TEST(PartAveraging, OfNothingOfTheClientsOwnItIsFedAvgBitForBit) {
  const auto world = world_communicator(60);
  for (const Keys& setting : limit_settings()) {
    for (const auto& [algorithm, layers] :
         {std::pair{"fedper", "0"}, std::pair{"lg_fedavg", "9"}, std::pair{"fedbn", ""}}) {
      Keys keys = setting;
      if (*layers != '\0') keys["algorithm.layers"] = layers;
      const TinyResult fedavg = run(tiny_keys(setting), *world);
      const TinyResult result = run(keys_of(algorithm, keys), *world);
      EXPECT_TRUE(result.personal.equal(fedavg.global.repeat({7}))) << algorithm;
      if (world->rank() != 0) continue;
      EXPECT_EQ(bytes_up(result.metrics.back()), bytes_up(fedavg.metrics.back()));
      EXPECT_EQ(bytes_down(result.metrics.back()), bytes_down(fedavg.metrics.back()));
      EXPECT_EQ(result.metrics.back().personal_accuracy, fedavg.metrics.back().personal_accuracy);
    }
  }
}

TEST(PartAveraging, OfNothingSharedItIsLocalOnlyBitForBit) {
  const auto world = world_communicator(60);
  std::vector<Keys> settings = limit_settings();
  settings.push_back(with_batch_norm({{"topology.participation", "0.6"}, {"train.block", "3"}}));
  for (Keys setting : settings) {
    setting.erase("topology.placement");
    const TinyResult alone = run(keys_of("localonly", setting), *world);
    for (const auto& [algorithm, layers] :
         {std::pair{"fedper", "9"}, std::pair{"lg_fedavg", "0"}}) {
      Keys keys = setting;
      keys["algorithm.layers"] = layers;
      const TinyResult result = run(keys_of(algorithm, keys), *world);
      EXPECT_TRUE(result.personal.equal(alone.personal)) << algorithm;
      if (world->rank() != 0) continue;
      EXPECT_EQ(bytes_up(result.metrics.back()) + bytes_down(result.metrics.back()), 0);
    }
  }
}

TEST(PartAveraging, BooksTheColumnsThatTravel) {
  const auto world = world_communicator(60);
  for (Keys changes : {Keys{{"model.hidden", "6,5"}, {"topology.participation", "0.6"}},
                       with_batch_norm({{"topology.participation", "0.6"}})}) {
    changes["run.dtype"] = "float32";
    const reference::Problem problem = reference::make_problem(tiny_keys(changes));
    for (const std::string algorithm : {"fedper", "lg_fedavg", "fedbn"}) {
      for (const auto& [codec, bytes] : {std::pair{"dense", 4}, std::pair{"fp16", 2}}) {
        Keys keys = keys_of(algorithm, changes);
        keys["algorithm.codec"] = codec;
        const TinyResult result = run(keys, *world);
        if (world->rank() != 0) continue;
        std::int64_t travelling = problem.layout->size();
        for (const std::size_t place : own_places(keys, problem)) {
          travelling -= problem.initial[place].numel();
        }
        const double payload = result.metrics.back().participants * static_cast<double>(travelling);
        EXPECT_EQ(bytes_down(result.metrics.back()), 4 * payload) << algorithm;
        EXPECT_EQ(bytes_up(result.metrics.back()), bytes * payload) << algorithm;
      }
    }
  }
}

TEST(PartAveraging, ClientsThatNeverTrainedHaveTheInitialPart) {
  const Keys keys =
      keys_of("fedbn", with_batch_norm({{"topology.participation", "0.3"}, {"run.rounds", "2"}}));
  const TinyResult result = run(keys, *world_communicator(60));
  const reference::Problem problem = reference::make_problem(keys);
  std::vector<bool> trained = have_trained(result);
  trained[2] = false;  // batch norm cannot train on its one sample
  const auto row = [&](const Tensor& models, std::int64_t k) {
    return models.reshape({7, problem.layout->size()})[k];
  };
  for (const std::size_t place : reference::batch_norm(problem)) {
    const Field& field = problem.layout->fields()[place];
    for (std::int64_t k = 0; k < 7; ++k) {
      const auto part = [&](const Tensor& models) {
        return row(models, k).narrow(0, field.offset, field.size);
      };
      EXPECT_EQ(part(result.personal).equal(part(result.initial)),
                !trained[static_cast<std::size_t>(k)])
          << field.name << " of " << k;
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
