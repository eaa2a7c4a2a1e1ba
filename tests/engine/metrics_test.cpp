#include "fedhpc/engine/metrics.hpp"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(PersonalMetrics, SummariseClients) {
  PersonalMetrics personal(4);
  RoundMetrics metrics;
  // Accuracies 0.5, 1 and 0.2; client 2 has no test samples.
  personal.update({{2, 1, 4}, {4, 4, 2}, {0, 0, 0}, {10, 2, 30}}, {0, 2, 3}, metrics);
  EXPECT_NEAR(metrics.personal_accuracy, 1.7 / 3, 1e-12);
  EXPECT_NEAR(metrics.personal_accuracy_weighted, 7.0 / 16, 1e-12);
  EXPECT_NEAR(metrics.personal_loss, (2 + 0.5 + 3) / 3, 1e-12);
  EXPECT_NEAR(metrics.participant_accuracy, 0.35, 1e-12);
  EXPECT_NEAR(metrics.best_personal_accuracy, 1.7 / 3, 1e-15);
  // numpy: std([.5, 1, .2]) and percentile([.5, 1, .2], 10)
  EXPECT_NEAR(metrics.personal_accuracy_std, 0.32998316455372216, 1e-12);
  EXPECT_NEAR(metrics.personal_accuracy_p10, 0.26, 1e-12);
  EXPECT_TRUE(std::isnan(personal.now()[2]));
  EXPECT_TRUE(std::isnan(personal.best()[2]));

  // The best so far is kept, client by client.
  personal.update({{2, 2, 0}, {4, 0, 0}, {0, 0, 0}, {10, 1, 0}}, {}, metrics);
  EXPECT_NEAR(metrics.best_personal_accuracy, (1 + 1 + 0.2) / 3, 1e-15);
  EXPECT_NEAR(metrics.personal_accuracy, 1.1 / 3, 1e-12);
  EXPECT_TRUE(std::isnan(metrics.participant_accuracy));
}

TEST(PersonalMetrics, OfNoTestSamplesAreNan) {
  PersonalMetrics personal(2);
  RoundMetrics metrics;
  personal.update({{}, {}}, {0, 1}, metrics);
  for (const double value :
       {metrics.personal_accuracy, metrics.personal_accuracy_weighted,
        metrics.personal_accuracy_std, metrics.personal_accuracy_p10, metrics.personal_loss,
        metrics.participant_accuracy, metrics.best_personal_accuracy}) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(RoundMetrics, ListsValuesInOrderOfTheTable) {
  RoundMetrics metrics;
  std::map<std::string, double> by_name;
#define FEDHPC_METRIC(name, unit, meaning) \
  by_name[#name] = metrics.name = static_cast<double>(by_name.size());
#include "fedhpc/engine/metrics.def"
#undef FEDHPC_METRIC
  metrics.own = {-1, -2};
  const std::vector<Metric> series = metrics_of({});
  ASSERT_EQ(series.front().name, "train_loss");
  std::vector<double> expected;
  for (const Metric& one : series) expected.push_back(by_name.at(one.name));
  expected.insert(expected.end(), metrics.own.begin(), metrics.own.end());
  EXPECT_EQ(metrics.values(), expected);
}

}  // namespace
}  // namespace fedhpc
