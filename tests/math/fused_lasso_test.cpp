#include "fedhpc/math/fused_lasso.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "reference/fused_lasso.hpp"

namespace fedhpc {
namespace {

using reference::Numbers;
using reference::solved_by_dual;
using reference::solved_by_enumeration;

Numbers normal(std::size_t count, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> draw;
  Numbers values(count);
  std::generate(values.begin(), values.end(), [&] { return draw(engine); });
  return values;
}

template <typename T>
std::vector<T> solved(std::vector<T> g, double gamma) {
  FusedLasso lasso;
  const at::ScalarType type = sizeof(T) == 8 ? at::kDouble : at::kFloat;
  lasso.prox_(at::from_blob(g.data(), {1, static_cast<std::int64_t>(g.size())}, type), gamma);
  return g;
}

/// How far u is from optimal: v_k = sum_{i<=k} (g_i - u_i) has to be gamma times the sign of
/// (Lambda u)_k, or within +-gamma where that is 0.
double violation(const Numbers& u, const Numbers& g, double gamma) {
  long double v = 0;
  double worst = 0;
  for (std::size_t k = 0; k < g.size(); ++k) {
    v += static_cast<long double>(g[k]) - static_cast<long double>(u[k]);
    const double next = k + 1 < g.size() ? u[k + 1] : 0;
    const auto found = static_cast<double>(v);
    worst = std::max(worst, u[k] == next ? std::abs(found) - gamma
                                         : std::abs(found - (u[k] > next ? gamma : -gamma)));
  }
  return worst;
}

void expect_near(const Numbers& got, const Numbers& expected, double tolerance,
                 const std::string& which) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance) << which << ", coordinate " << i;
  }
}

/// Rows that are hard on one method or another.
std::vector<std::pair<std::string, Numbers>> hard_rows(std::size_t count) {
  const auto of = [&](auto&& value) {
    Numbers row(count);
    for (std::size_t i = 0; i < count; ++i) {
      row[i] = value(static_cast<double>(i) / static_cast<double>(count), i);
    }
    return row;
  };
  Numbers walk = normal(count, 17);
  std::partial_sum(walk.begin(), walk.end(), walk.begin());
  return {
      {"noise", normal(count, 16)},
      {"walk", walk},
      {"equal", of([](double, std::size_t) { return 0.1; })},
      {"alternating", of([](double, std::size_t i) { return i % 2 == 0 ? 1.0 : -1.0; })},
      {"rising", of([](double x, std::size_t) { return 100 * x; })},
      {"falling", of([](double x, std::size_t) { return 50 - 100 * x; })},
      {"bent up, then down",
       of([](double x, std::size_t) { return 100 * (x < 0.5 ? x * x : x * (1 - x)); })},
      {"growing waves", of([](double x, std::size_t) { return x * std::sin(300 * x * x); })},
      {"a step and noise's least bits", of([](double x, std::size_t i) {
         return (x < 0.5 ? 1.0 : 2.0) + (i % 3 == 0 ? 1e-16 : 0);
       })},
  };
}

TEST(FusedLasso, EqualsTheDualSolution) {
  unsigned seed = 0;
  for (std::size_t n = 1; n <= 60; ++n) {
    for (const double gamma : {1e-9, 0.01, 0.3, 1.0, 4.0, 50.0}) {
      for (int repeat = 0; repeat < 5; ++repeat) {
        Numbers g = normal(n, ++seed);
        if (repeat == 0) std::partial_sum(g.begin(), g.end(), g.begin());
        if (repeat == 1)
          std::transform(g.begin(), g.end(), g.begin(), [](double x) { return std::round(x); });
        const Numbers u = solved(g, gamma);
        expect_near(u, solved_by_dual(g, gamma), 1e-12, "gamma " + std::to_string(gamma));
        ASSERT_LE(violation(u, g, gamma), 1e-12 * (1 + gamma));
      }
    }
  }
}

TEST(FusedLasso, EqualsTheBestOfAllPatterns) {
  unsigned seed = 1000;
  for (std::size_t n = 1; n <= 6; ++n) {
    for (const double gamma : {0.05, 0.4, 1.5}) {
      for (int repeat = 0; repeat < 5; ++repeat) {
        const Numbers g = normal(n, ++seed);
        expect_near(solved(g, gamma), solved_by_enumeration(g, gamma), 1e-12, "patterns");
      }
    }
  }
}

TEST(FusedLasso, IsOptimalOnLongRows) {
  for (const auto& [name, g] : hard_rows(200'000)) {
    const double largest = std::abs(*std::max_element(
        g.begin(), g.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
    // One sum of 2e4 there, to which every coordinate is added with the same rounding.
    const double drift = name == "equal" ? 1e-12 * 0.1 * 200'000 : 0;
    for (const double gamma : {1e-6, 0.1, 1.0, 30.0, 1e4, 1e9}) {
      const Numbers u = solved(g, gamma);
      EXPECT_LE(violation(u, g, gamma), 1e-9 * std::max({gamma, largest, 1.0}) + drift)
          << name << gamma;
    }
  }
}

TEST(FusedLasso, WorksLinearlyOnAnyRow) {
  constexpr std::int64_t kCount = 1'000'000;
  for (auto& [name, g] : hard_rows(kCount)) {
    for (const double gamma : {1e-3, 1.0, 1e3, 1e8}) {
      FusedLasso lasso;
      Numbers u = g;
      lasso.prox_(at::from_blob(u.data(), {1, kCount}, at::kDouble), gamma);
      EXPECT_LE(lasso.visits(), 4 * kCount + 2) << name << gamma;
      EXPECT_GE(lasso.visits(), 2 * kCount) << name << gamma;  // every coordinate, both hulls
    }
  }
}

TEST(FusedLasso, PlateausAreEqualBitForBit) {
  const Numbers g = normal(5000, 3);
  std::size_t runs_before = g.size();
  for (const double gamma : {0.1, 1.0, 10.0}) {
    const Numbers u = solved(g, gamma);
    std::size_t runs = 1;
    for (std::size_t i = 1; i < u.size(); ++i) {
      const double jump = std::abs(u[i] - u[i - 1]);
      runs += jump == 0 ? 0 : 1;
      ASSERT_TRUE(jump == 0 || jump > 1e-13) << "a torn plateau";
      ASSERT_FALSE(u[i] == 0 && std::signbit(u[i]));
    }
    EXPECT_LT(10 * runs, 9 * runs_before);
    runs_before = runs;
  }
  const Numbers equal = solved(Numbers(100'000, 0.1), 1.0);
  EXPECT_EQ(std::count(equal.begin(), equal.end(), equal[0]), 100'000);
  EXPECT_NEAR(equal[0], 0.1 - 1.0 / 100'000, 1e-12);
}

TEST(FusedLasso, LimitCases) {
  const Numbers g{-0.0, 3, std::numeric_limits<double>::quiet_NaN(), 1e-310};
  const Numbers untouched = solved(g, 0.0);
  EXPECT_TRUE(std::signbit(untouched[0]) && std::isnan(untouched[2]) && untouched[3] == 1e-310);
  EXPECT_TRUE(solved(Numbers{}, 1.0).empty());
  EXPECT_EQ(solved(Numbers{3}, 1.0), Numbers{2});
  EXPECT_EQ(solved(Numbers{-3}, 1.0), Numbers{-2});
  EXPECT_EQ(solved(Numbers{0.5}, 1.0), Numbers{0});
  const Numbers noise = normal(1000, 5);
  for (const double gamma : {1e5, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(solved(noise, gamma), Numbers(1000, 0)) << gamma;
  }
  for (const double gamma : {1e-300, 1e-20}) {
    expect_near(solved(noise, gamma), noise, 1e-14, "tiny gamma");
  }
  FusedLasso lasso;
  EXPECT_THROW(lasso.prox_(at::ones({1, 2}), -1), std::logic_error);
  EXPECT_THROW(lasso.prox_(at::ones({1, 2}), std::nan("")), std::logic_error);
  EXPECT_THROW(lasso.prox_(at::ones({2, 3}).t(), 1), std::logic_error);
  EXPECT_THROW(lasso.prox_(at::ones({1, 3}).expand({2, 3}), 1), std::logic_error);
}

TEST(FusedLasso, OneRowThatIsNotFiniteBecomesNanAndOnlyThat) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    for (const std::int64_t place : {0, 1, 300, 998, 999}) {
      const Tensor clean = at::randn({3, 1000}, at::kDouble);
      const Tensor rows = clean.clone();
      rows[1][place] = bad;
      for (const double gamma : {0.3, 20.0, std::numeric_limits<double>::infinity()}) {
        FusedLasso lasso;
        const Tensor got = rows.clone();
        const Tensor expected = clean.clone();
        lasso.prox_(got, gamma);
        lasso.prox_(expected, gamma);
        EXPECT_TRUE(got[1].isnan().all().item<bool>());
        EXPECT_TRUE(got[0].equal(expected[0]) && got[2].equal(expected[2]));
      }
    }
  }
}

TEST(FusedLasso, RowsMayLieApartAndDoNotMix) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Tensor wide = at::randn({4, 1100}, type);
    const Tensor before = wide.clone();
    const Tensor rows = wide.narrow(1, 50, 1000);
    FusedLasso lasso;
    lasso.prox_(rows, 0.7);
    for (std::int64_t c = 3; c >= 0; --c) {
      const Tensor alone = before[c].narrow(0, 50, 1000).clone().unsqueeze(0);
      lasso.prox_(alone, 0.7);
      EXPECT_TRUE(alone[0].equal(rows[c]));
    }
    EXPECT_TRUE(wide.narrow(1, 0, 50).equal(before.narrow(1, 0, 50)));
    EXPECT_TRUE(wide.narrow(1, 1050, 50).equal(before.narrow(1, 1050, 50)));
    EXPECT_FALSE(rows.equal(before.narrow(1, 50, 1000)));
  }
}

TEST(FusedLasso, Float32IsTheRoundedResultOfFloat64) {
  FusedLasso lasso;
  for (const double gamma : {1e-4, 0.5, 10.0}) {
    const Tensor narrow = at::randn({2, 3000}, at::kFloat);
    const Tensor wide = narrow.to(at::kDouble);
    lasso.prox_(narrow, gamma);
    lasso.prox_(wide, gamma);
    EXPECT_TRUE(narrow.equal(wide.to(at::kFloat)));
  }
}

}  // namespace
}  // namespace fedhpc
