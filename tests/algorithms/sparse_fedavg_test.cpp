#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/sparse_fedavg_reference.hpp"

// FedAvg with random sparse transmission (algorithm.transmit_fraction).
namespace fedhpc::testing {
namespace {

class SparseFedAvgReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(SparseFedAvgReference, EqualsPlainLoop) {
  const Keys keys = tiny_keys(GetParam().changes);
  const std::string unsent = keys.at("algorithm.unsent");
  const reference::Outcome expected = reference::sparse_fedavg(
      reference::make_problem(keys), std::stod(keys.at("algorithm.transmit_fraction")),
      unsent == "keep"   ? reference::Unsent::Keep
      : unsent == "zero" ? reference::Unsent::Zero
                         : reference::Unsent::Rescale);
  expect_equals_reference(keys, expected, GetParam().single_bound);
}

Keys sparse(const std::string& unsent, const std::string& fraction, Keys changes = {}) {
  changes["algorithm.unsent"] = unsent;
  changes["algorithm.transmit_fraction"] = fraction;
  return changes;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, SparseFedAvgReference,
    ::testing::Values(
        ReferenceCase{"keep", sparse("keep", "0.5")}, ReferenceCase{"zero", sparse("zero", "0.5")},
        ReferenceCase{"rescale", sparse("rescale", "0.5")},
        ReferenceCase{"keep_little", sparse("keep", "0.05", {{"train.block", "3"}})},
        ReferenceCase{"zero_more", sparse("zero", "0.667", {{"train.block", "8"}})},
        ReferenceCase{"keep_some_clients_uniform", sparse("keep", "0.5",
                                                          {{"topology.participation", "0.4"},
                                                           {"run.rounds", "5"},
                                                           {"algorithm.weighting", "uniform"}})},
        ReferenceCase{"keep_batch_norm", with_batch_norm(sparse("keep", "0.5")), kBatchNormBound},
        ReferenceCase{"zero_batch_norm",
                      with_batch_norm(sparse("zero", "0.8", {{"train.block", "3"}})),
                      kBatchNormBound},
        ReferenceCase{"rescale_batch_norm", with_batch_norm(sparse("rescale", "0.8")),
                      kBatchNormBound}),
    name_of);

TEST(SparseFedAvg, BooksTheNumbersSentAndASeed) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult half = run(tiny_keys(sparse("keep", "0.5")), *comm);
  if (comm->rank() != 0) return;
  const double values = std::floor(0.5 * static_cast<double>(half.global.numel()) + 0.5);
  for (const RoundMetrics& metrics : half.metrics) {
    EXPECT_EQ(metrics.bytes_up_client_cloud, 7 * (8 * values + 8));
    EXPECT_EQ(metrics.bytes_down_client_cloud, 7 * (8 * values + 8));
  }
}

TEST(SparseFedAvg, IsTheSameOnAnyRanksToTheLastBit) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  const std::unique_ptr<Communicator> alone = local_communicator();
  for (const std::string unsent : {"keep", "zero", "rescale"}) {
    Keys keys = tiny_keys(sparse(unsent, "0.3", {{"run.reproducible", "true"}}));
    const TinyResult expected = run(keys, *alone);
    keys["train.block"] = "3";
    expect_same_bits(run(keys, *world), expected, *world);
  }
}

TEST(SparseFedAvg, WhatNobodyHasSentIsZeroOnAnyRanks) {
  // An entry that rounding leaves beside 0 flips ReLU's derivative: after ten rounds models differ.
  const std::unique_ptr<Communicator> world = world_communicator(60);
  const std::unique_ptr<Communicator> alone = local_communicator();
  for (const std::string unsent : {"zero", "rescale"}) {
    Keys keys = tiny_keys(sparse(unsent, "0.4",
                                 {{"data.partition", "natural"},
                                  {"data.clients", "8"},
                                  {"model.hidden", "7,6"},
                                  {"train.batch_size", "0"},
                                  {"train.local_epochs", "3"},
                                  {"train.lr", "0.2"},
                                  {"run.rounds", "10"}}));
    keys.erase("data.partition_file");
    const TinyResult expected = run(keys, *alone);
    EXPECT_LT(distance(run(keys, *world).global, expected.global), 1e-9) << unsent;
    keys["train.block"] = "5";
    EXPECT_LT(distance(run(keys, *world).global, expected.global), 1e-9) << unsent;
    EXPECT_GT(expected.global.eq(0).sum().item<std::int64_t>(), 0);
  }
}

TEST(SparseFedAvg, RefusesACodecBesides) {
  EXPECT_TRUE(
      refuses_on_command_line(tiny_keys(sparse("keep", "0.5", {{"algorithm.codec", "fp16"}}))));
  EXPECT_FALSE(refuses_on_command_line(tiny_keys({{"algorithm.codec", "fp16"}})));
}

}  // namespace
}  // namespace fedhpc::testing
