#include "fedhpc/rounds/weighted_sum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

namespace fedhpc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

/// N rows of many magnitudes with their weights, the same on every rank.
struct Addends {
  Tensor rows;  // [N, P]
  std::vector<double> weights;

  Addends(std::int64_t n, std::int64_t columns, at::ScalarType type, std::uint64_t seed)
      : rows(at::empty({n, columns}, type)) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    with_type(type, [&]<typename T>() {
      auto* values = rows.data_ptr<T>();
      for (std::int64_t i = 0; i < rows.numel(); ++i) {
        values[i] = static_cast<T>(normal(engine) * std::pow(2.0, 6 * normal(engine)));
      }
    });
    for (std::int64_t i = 0; i < n; ++i) weights.push_back(1 + static_cast<double>(engine() % 90));
  }
};

Topology flat(Communicator& comm) {
  return {comm, Placement(edges_of_clients(1, 0, {}), 0, comm.size())};
}

/// The sum of the rows in `order`, dealt out to the ranks in turn and added in blocks of `width`.
Tensor sum_of(const Addends& addends, const std::vector<std::int64_t>& order, std::size_t width,
              Communicator& comm) {
  std::vector<std::int64_t> mine;
  for (std::size_t i = static_cast<std::size_t>(comm.rank()); i < order.size();
       i += static_cast<std::size_t>(comm.size())) {
    mine.push_back(order[i]);
  }
  WeightedSum sum(1, addends.rows.size(1), Summation::Reproducible);
  for (std::size_t first = 0; first < mine.size(); first += width) {
    const std::size_t count = std::min(width, mine.size() - first);
    Tensor block =
        at::empty({static_cast<std::int64_t>(count), addends.rows.size(1)}, addends.rows.options());
    std::vector<double> weights;
    for (std::size_t i = 0; i < count; ++i) {
      block[static_cast<std::int64_t>(i)].copy_(addends.rows[mine[first + i]]);
      weights.push_back(addends.weights[static_cast<std::size_t>(mine[first + i])]);
    }
    sum.add(std::vector<std::int64_t>(count, 0), weights, block);
  }
  Topology topology = flat(comm);
  return sum.total(topology, Among::All);
}

TEST(ExactSum, DoesNotDependOnOrderBlocksOrRanks) {
  const auto world = world_communicator(60);
  const auto alone = local_communicator();
  std::mt19937_64 engine(3);  // the same shuffles on every rank
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Addends addends(37, 501, type, 8);
    std::vector<std::int64_t> order(37);
    std::iota(order.begin(), order.end(), 0);
    const Tensor expected = sum_of(addends, order, 37, *alone);
    for (const std::size_t width : {1, 3, 8}) {
      std::shuffle(order.begin(), order.end(), engine);
      EXPECT_TRUE(sum_of(addends, order, width, *world).equal(expected));
    }
  }
}

TEST(ExactSum, RoundsEveryAddendAtTheAgreedPlace) {
  // The formula of the specification: w x scaled by 2^(40 - e), rounded, what is left once more.
  const auto alone = local_communicator();
  const Addends addends(11, 64, at::kDouble, 4);
  const auto* rows = addends.rows.const_data_ptr<double>();
  int e = -10000;
  for (std::int64_t i = 0; i < addends.rows.numel(); ++i) {
    int exponent = 0;
    std::frexp(addends.weights[static_cast<std::size_t>(i / 64)] * rows[i], &exponent);
    e = std::max(e, exponent);
  }
  std::vector<std::int64_t> order(11);
  std::iota(order.begin(), order.end(), 0);
  const Tensor actual = sum_of(addends, order, 4, *alone);
  for (std::int64_t i = 0; i < 64; ++i) {
    long long high = 0;
    long long low = 0;
    for (std::int64_t n = 0; n < 11; ++n) {
      const double x = addends.weights[static_cast<std::size_t>(n)] * rows[64 * n + i];
      const long long integer = std::llrint(std::ldexp(x, 40 - e));
      high += integer;
      low += std::llrint(std::ldexp(std::ldexp(x, 40 - e) - static_cast<double>(integer), 40));
    }
    const double sum = static_cast<double>(high) + std::ldexp(static_cast<double>(low), -40);
    EXPECT_EQ(actual.const_data_ptr<double>()[i], std::ldexp(sum, e - 40));
  }
  EXPECT_EQ(actual.const_data_ptr<double>()[64],
            std::accumulate(addends.weights.begin(), addends.weights.end(), 0.0));
}

TEST(ExactSum, IsAsGoodAsFloatingPoint) {
  const auto alone = local_communicator();
  Topology topology = flat(*alone);
  const Addends addends(50, 200, at::kDouble, 6);
  WeightedSum fast(1, 200, Summation::Fast);
  WeightedSum exact(1, 200, Summation::Reproducible);
  const std::vector<std::int64_t> segments(50, 0);
  fast.add(segments, addends.weights, addends.rows);
  exact.add(segments, addends.weights, addends.rows);
  const Tensor a = fast.total(topology, Among::All);
  const Tensor b = exact.total(topology, Among::All);
  EXPECT_LT(a.sub(b).abs().max().item<double>(), 1e-14 * a.abs().max().item<double>());
}

// As of the variances that batch norm has of raw features.
TEST(ExactSum, ALargeColumnTakesNothingFromTheOthers) {
  const auto world = world_communicator(60);
  Topology topology = flat(*world);
  const Tensor rows = at::empty({3, 4}, at::kFloat);
  for (std::int64_t c = 0; c < 3; ++c) {
    const float part = 1.0F / static_cast<float>(3 + c);
    const std::vector<float> row{part, 1e14F * part, 1e-4F * part, -part};
    std::copy(row.begin(), row.end(), rows.data_ptr<float>() + 4 * c);
  }
  const std::vector<std::int64_t> segments(3, 0);
  const std::vector<double> weights{1, 2, 3};
  WeightedSum fast(1, 4, Summation::Fast);
  WeightedSum exact(1, 4, Summation::Reproducible);
  fast.add(segments, weights, rows.to(at::kDouble));
  exact.add(segments, weights, rows);
  const Tensor a = fast.total(topology, Among::All);
  const Tensor b = exact.total(topology, Among::All);
  EXPECT_LT(a.sub(b).div(a).abs().max().item<double>(), 1e-6);
}

TEST(ExactSum, NonFiniteAddendsComeOutAsInFloatingPoint) {
  const auto world = world_communicator(60);
  Topology topology = flat(*world);
  WeightedSum sum(2, 4, Summation::Reproducible);
  Tensor row = at::zeros({1, 4}, at::kDouble);
  auto* values = row.data_ptr<double>();
  const bool last = world->rank() + 1 == world->size();
  values[0] = 1;
  values[1] = last ? kInfinity : 1;
  values[2] = last ? kNan : 1;
  values[3] = last ? -kInfinity : -1;
  sum.add(std::vector<std::int64_t>{1}, std::vector<double>{2}, row);
  const Tensor total = sum.total(topology, Among::All);
  const auto* out = total.const_data_ptr<double>() + 5;
  EXPECT_EQ(out[0], 2.0 * world->size());
  EXPECT_EQ(out[1], kInfinity);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(out[3], -kInfinity);
  EXPECT_EQ(out[4], 2.0 * world->size());
  EXPECT_TRUE(total[0].equal(at::zeros({5}, at::kDouble))) << "the other segment stays empty";
}

TEST(ExactSum, TakesTheSmallestAndTheLargestNumbers) {
  const auto alone = local_communicator();
  for (const double magnitude : {5e-324, 1e-310, 1e-30, 1.0, 1e300}) {
    Topology topology = flat(*alone);
    WeightedSum sum(1, 1, Summation::Reproducible);
    Tensor row = at::zeros({1, 1}, at::kDouble);
    row.data_ptr<double>()[0] = magnitude;
    sum.add(std::vector<std::int64_t>{0}, std::vector<double>{1}, row);
    const double total = sum.total(topology, Among::All).const_data_ptr<double>()[0];
    // Below 2^-940 a number may vanish, but is never made up.
    EXPECT_TRUE(std::abs(total - magnitude) <= magnitude * 0x1p-40 || total == 0) << magnitude;
    if (magnitude > 1e-280) {
      EXPECT_GT(total, 0);
    }
  }
}

TEST(WeightedSum, AWeightMustBeFinite) {
  WeightedSum sum(1, 1, Summation::Fast);
  EXPECT_THROW(sum.add(std::vector<std::int64_t>{0}, std::vector<double>{kNan},
                       at::zeros({1, 1}, at::kDouble)),
               std::logic_error);
  EXPECT_THROW(
      sum.add(std::vector<std::int64_t>{1}, std::vector<double>{1}, at::zeros({1, 1}, at::kDouble)),
      std::logic_error);
}

}  // namespace
}  // namespace fedhpc
