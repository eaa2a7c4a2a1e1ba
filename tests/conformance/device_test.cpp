#include "fixtures/device.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "fixtures/tiny_run.hpp"

// Every algorithm of the registry on a device equals itself on the host.
namespace fedhpc::testing {
namespace {

class EveryAlgorithmOnADevice : public DeviceRanksTest,
                                public ::testing::WithParamInterface<std::string> {
 protected:
  Keys keys(const Keys& changes = {}) const { return tiny_keys_of(GetParam(), changes); }

  TinyResult on_device(Keys these) {
    these["run.device"] = "cuda";
    return run(these, *device_ranks_);
  }

  void expect_same(const Keys& these, double bound, const std::string& what) {
    const TinyResult expected = run(these, *host_);
    const TinyResult actual = on_device(these);
    EXPECT_LT(distance(actual.global, expected.global), bound) << what;
    EXPECT_LT(distance(actual.personal, expected.personal), bound) << what;
    EXPECT_EQ(actual.cohorts, expected.cohorts) << what;
    if (host_->rank() != 0) return;
    ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
    for (std::size_t t = 0; t < expected.metrics.size(); ++t) {
      const RoundMetrics& a = actual.metrics[t];
      const RoundMetrics& b = expected.metrics[t];
      EXPECT_EQ(bytes_up(a), bytes_up(b)) << what;
      EXPECT_EQ(bytes_down(a), bytes_down(b)) << what;
      const auto near = [&](double x, double y, double by) {
        EXPECT_TRUE((std::isnan(x) && std::isnan(y)) ||
                    std::abs(x - y) <= by * std::max(1.0, std::abs(y)))
            << what << ", round " << t + 1 << ": " << x << " and " << y;
      };
      near(a.train_loss, b.train_loss, 1e-5);
      near(a.global_loss, b.global_loss, 1e-4);
      near(a.global_accuracy, b.global_accuracy, 0.03);
      near(a.personal_accuracy, b.personal_accuracy, 0.03);
    }
  }
};

TEST_P(EveryAlgorithmOnADevice, EqualsTheHost) {
  for (const auto& [dtype, block] :
       {std::pair{"float64", "1"}, std::pair{"float64", "5"}, std::pair{"float32", "8"}}) {
    const double single = GetParam() == "tdpfed" ? 1e-3 : 1e-5;
    expect_same(keys({{"run.dtype", dtype}, {"train.block", block}}),
                dtype == std::string("float64") ? 1e-9 : single,
                std::string(dtype) + " in blocks of " + block);
  }
}

TEST_P(EveryAlgorithmOnADevice, EqualsTheHostWithEveryOptimizer) {
  for (const std::string optimizer : {"momentum", "nesterov", "adam"}) {
    const Keys these = keys({{"train.optimizer", optimizer},
                             {"train.weight_decay", "0.01"},
                             {"train.lr", "0.02"},
                             {"train.block", "4"}});
    if (refuses(these)) continue;
    expect_same(these, 1e-9, optimizer);
  }
}

TEST_P(EveryAlgorithmOnADevice, EqualsTheHostWithPartOfTheClientsAndEdges) {
  for (const std::string edges : {"1", "4", "7"}) {
    expect_same(
        keys({{"topology.participation", "0.5"}, {"topology.edges", edges}, {"train.block", "3"}}),
        1e-9, edges + " edges");
  }
}

TEST_P(EveryAlgorithmOnADevice, EqualsTheHostWithStragglers) {
  for (const std::string work : {"part", "none"}) {
    expect_same(
        keys({{"train.stragglers", "0.5"}, {"train.straggler_work", work}, {"train.block", "3"}}),
        1e-9, "late clients do " + work);
  }
}

TEST_P(EveryAlgorithmOnADevice, SameBitsWhenReproducible) {
  // The stand-in, as cuBLAS and LibTorch may, orders sums by the number of clients in a block.
  for (const std::string dtype : {"float64", "float32"}) {
    for (const std::string edges : {"1", "4"}) {
      Keys these = keys({{"run.device", "cuda"},
                         {"run.dtype", dtype},
                         {"topology.edges", edges},
                         {"topology.participation", "0.8"},
                         {"run.reproducible", "true"},
                         {"train.block", "5"}});
      const TinyResult expected = run(these, *alone_);
      for (const std::string width : {"1", "2", "3", "8"}) {
        these["train.block"] = width;
        expect_same_bits(run(these, *device_ranks_), expected, *device_ranks_);
      }
    }
  }
  const Keys these = keys({{"run.reproducible", "true"}, {"train.block", "3"}});
  expect_same(these, 1e-9, "reproducible");
}

TEST_P(EveryAlgorithmOnADevice, SameBitsOfConvolutionsWhenReproducible) {
  for (const std::string precision : {"fp32", "tf32"}) {
    Keys these = keys(with_batch_norm({{"run.device", "cuda"},
                                       {"run.dtype", "float32"},
                                       {"run.rounds", "2"},
                                       {"run.reproducible", "true"},
                                       {"train.label_smoothing", "0.1"},
                                       {"train.precision", precision},
                                       {"train.block", "5"}}));
    if (refuses(these)) these.erase("train.label_smoothing");
    const TinyResult expected = run(these, *alone_);
    for (const std::string width : {"2", "3"}) {
      these["train.block"] = width;
      expect_same_bits(run(these, *device_ranks_), expected, *device_ranks_);
    }
  }
}

TEST_P(EveryAlgorithmOnADevice, SameBitsWhenResumedOnOneRank) {
  const Keys these = keys({{"run.device", "cuda"},
                           {"run.dtype", "float32"},
                           {"run.rounds", "6"},
                           {"run.reproducible", "true"},
                           {"topology.participation", "0.5"}});
  const TinyResult straight = run(these, *alone_);
  expect_same_bits(run_in_two_parts(these, 3, *device_ranks_, *alone_), straight, *device_ranks_);
}

TEST_P(EveryAlgorithmOnADevice, EqualsTheHostOnImages) {
  for (const auto& [rule, augment] : {std::pair{"pixel", "none"}, std::pair{"half", "crop_flip"}}) {
    Keys these = keys({{"data.name", "glyphs"},
                       {"data.partition", "pfedme"},
                       {"data.standardize", rule},
                       {"data.augment", augment},
                       {"train.local_epochs", "1"},
                       {"train.block", "4"}});
    these.erase("data.partition_file");
    // Rounding alone tells the weights of pixels apart that are always equal.
    if (has_key(GetParam(), "algorithm.select_limit")) these["algorithm.select_limit"] = "0";
    expect_same(these, 1e-9, std::string(rule) + " " + augment);
  }
}

TEST_P(EveryAlgorithmOnADevice, SpillsWhatDoesNotFit) {
  expect_same(keys({{"store.device_budget", "700"}, {"train.block", "3"}}), 1e-9, "little memory");
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithmOnADevice, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
