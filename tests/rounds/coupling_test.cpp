#include "fedhpc/rounds/coupling.hpp"

#include <cmath>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "math/samples_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

constexpr std::int64_t kClients = 11;
constexpr std::int64_t kColumns = 700;  // several tiles and a rest

LayoutPtr layout_of(std::int64_t columns) {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {columns}, columns, Tag::Trainable);
  return layout;
}

/// The client with position i among the ascending ids has id 4 i + 2.
std::int64_t id_of(std::int64_t position) { return 4 * position + 2; }

/// Which positions a rank has, in which order.
using Spread = std::vector<std::int64_t> (*)(int rank, int ranks);

std::vector<std::int64_t> interleaved(int rank, int ranks) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = rank; i < kClients; i += ranks) positions.push_back(i);
  return positions;
}

/// The last rank has all clients, in descending order.
std::vector<std::int64_t> on_one_rank(int rank, int ranks) {
  std::vector<std::int64_t> positions;
  if (rank == ranks - 1) {
    for (std::int64_t i = kClients; i-- > 0;) positions.push_back(i);
  }
  return positions;
}

/// Rank 0 has 1, rank 1 has 2, ..., the last one the rest; neighbours swapped.
std::vector<std::int64_t> uneven(int rank, int ranks) {
  std::vector<std::int64_t> positions;
  const std::int64_t first = rank * (rank + 1) / 2;
  const std::int64_t last = rank == ranks - 1 ? kClients : first + rank + 1;
  for (std::int64_t i = first; i < last; ++i) positions.push_back(i);
  for (std::size_t i = 1; i < positions.size(); i += 2) std::swap(positions[i - 1], positions[i]);
  return positions;
}

std::vector<std::int64_t> ids_of(const std::vector<std::int64_t>& positions) {
  std::vector<std::int64_t> ids;
  for (const std::int64_t position : positions) ids.push_back(id_of(position));
  return ids;
}

Rows chosen(const Rows& all, const std::vector<std::int64_t>& positions) {
  Tensor index = at::empty({std::ssize(positions)}, at::kLong);
  std::copy(positions.begin(), positions.end(), index.data_ptr<std::int64_t>());
  return {all.values.index_select(0, index), all.layout};
}

struct Case {
  Spread spread;
  at::ScalarType type;
  const char* name;
};

class CouplingTest : public ::testing::TestWithParam<Case> {
 protected:
  Rows rows(const Tensor& values) const { return {values.to(type_), layout_}; }
  Rows mine(const Rows& all) const { return chosen(all, positions_); }

  const at::ScalarType type_ = GetParam().type;
  const LayoutPtr layout_ = layout_of(kColumns);
  const ColumnRanges all_columns_{{0, kColumns}};
  const ColumnRanges some_columns_{{3, 5}, {100, 101}, {250, 690}};
  const std::unique_ptr<Communicator> world_ = world_communicator(60);
  const std::vector<std::int64_t> positions_ = GetParam().spread(world_->rank(), world_->size());
  const Coupling coupling_{*world_, ids_of(positions_)};
  // One process that has all clients itself.
  const std::unique_ptr<Communicator> alone_ = local_communicator();
  const std::vector<std::int64_t> everyone_ = interleaved(0, 1);
  const Coupling whole_{*alone_, ids_of(everyone_)};
};

/// Sum of the terms of all columns by plain loops in long double.
template <typename Term>
Tensor plain_pairs(const Rows& a, const Rows& b, const ColumnRanges& columns, Term&& term) {
  const Tensor left = a.values.to(at::kDouble);
  const Tensor right = b.values.to(at::kDouble);
  Tensor sums = at::empty({a.count(), b.count()}, at::kDouble);
  for (std::int64_t i = 0; i < a.count(); ++i) {
    for (std::int64_t j = 0; j < b.count(); ++j) {
      long double sum = 0;
      for (const auto& [begin, end] : columns) {
        for (std::int64_t k = begin; k < end; ++k) {
          sum += term(left.const_data_ptr<double>()[i * left.size(1) + k],
                      right.const_data_ptr<double>()[j * right.size(1) + k], k);
        }
      }
      sums.data_ptr<double>()[i * b.count() + j] = static_cast<double>(sum);
    }
  }
  return sums;
}

Tensor plain_distances(const Rows& a, const Rows& b, const ColumnRanges& columns) {
  return plain_pairs(a, b, columns,
                     [](long double x, long double y, std::int64_t) { return (x - y) * (x - y); });
}

double largest_ratio(const Tensor& difference, const Tensor& scale) {
  return difference.abs().div(scale.clamp_min(1e-300)).max().item<double>();
}

TEST_P(CouplingTest, KnowsAllClients) {
  EXPECT_EQ(coupling_.count(), kClients);
  EXPECT_EQ(coupling_.ids(), ids_of(everyone_));
}

TEST_P(CouplingTest, MeasuresDistances) {
  const Rows a = rows(normals(1, kClients, kColumns));
  const Rows b = rows(normals(2, kClients, kColumns));
  for (const ColumnRanges& columns : {all_columns_, some_columns_}) {
    const Tensor found = coupling_.squared_distances(mine(a), mine(b), columns);
    const Tensor expected = plain_distances(a, b, columns);
    EXPECT_LT(largest_ratio(found.sub(expected), expected), 1e-13);
    EXPECT_TRUE(found.equal(whole_.squared_distances(a, b, columns)));  // bit for bit
  }
  EXPECT_TRUE(coupling_.squared_distances(mine(a), mine(b), {})
                  .equal(at::zeros({kClients, kClients}, at::kDouble)));
}

TEST_P(CouplingTest, MeasuresSmallDistancesBetweenLargeRows) {
  // Two groups far from each other, their members a millionth of their norm apart: neither the
  // origin nor the mean of all is near to any of them.
  Tensor values = normals(3, 1, kColumns).repeat({kClients, 1});
  values.narrow(0, 0, kClients / 2).neg_();
  const Rows all = rows(values.add(normals(4, kClients, kColumns), 1e-6));
  const Tensor expected = plain_distances(all, all, all_columns_);
  const Tensor found = coupling_.squared_distances(mine(all), mine(all), all_columns_);
  EXPECT_LT(largest_ratio(found.sub(expected), expected), 1e-12);
  EXPECT_TRUE(found.equal(found.t()));
  EXPECT_TRUE(found.diagonal().equal(at::zeros({kClients}, at::kDouble)));
  EXPECT_LT(found[0][1].item<double>(), 1e-11 * found[0][kClients - 1].item<double>());
}

TEST_P(CouplingTest, MultipliesRows) {
  const Rows a = rows(normals(5, kClients, kColumns));
  const Rows b = rows(normals(6, kClients, kColumns));
  const Rows centre = rows(normals(7, 1, kColumns));
  for (const Rows& reference : {Rows{}, centre}) {
    const Tensor shift = reference.values.defined() ? centre.values.to(at::kDouble)
                                                    : at::zeros({1, kColumns}, at::kDouble);
    const auto* minus = shift.const_data_ptr<double>();
    const Tensor expected = plain_pairs(a, b, some_columns_, [&](double x, double y, auto k) {
      return (static_cast<long double>(x) - minus[k]) * (static_cast<long double>(y) - minus[k]);
    });
    const Tensor found = coupling_.dots(mine(a), mine(b), some_columns_, reference);
    EXPECT_LT(found.sub(expected).abs().max().item<double>(), 1e-12 * 2 * 443);  // ~ |a| |b|
    EXPECT_TRUE(found.equal(whole_.dots(a, b, some_columns_, reference)));
  }
}

TEST_P(CouplingTest, TakesCosines) {
  const Rows a = rows(normals(5, kClients, kColumns));
  const Rows centre = rows(normals(7, 1, kColumns));
  a.values[4].copy_(centre.values[0]);  // no direction
  const Tensor found = coupling_.cosines(mine(a), some_columns_, centre);
  const Tensor squares = plain_distances(a, a, some_columns_);
  const Tensor lengths = plain_distances(a, centre, some_columns_);  // [N, 1], squared
  for (std::int64_t i = 0; i < kClients; ++i) {
    for (std::int64_t j = 0; j < kClients; ++j) {
      const double one = lengths[i][0].item<double>();
      const double other = lengths[j][0].item<double>();
      const double expected = i == 4 || j == 4 ? 0
                                               : (one + other - squares[i][j].item<double>()) /
                                                     (2 * std::sqrt(one * other));
      EXPECT_NEAR(found[i][j].item<double>(), expected, 1e-5) << i << ' ' << j;
    }
  }
}

TEST_P(CouplingTest, GivesAllClientsRowsOfAnyShape) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{kClients, 12}, std::vector<std::int64_t>{kClients, 3, 4}}) {
    const Tensor all = normals(10, kClients, 12).reshape(shape);
    Tensor index = at::empty({std::ssize(positions_)}, at::kLong);
    std::copy(positions_.begin(), positions_.end(), index.data_ptr<std::int64_t>());
    EXPECT_TRUE(coupling_.all_rows(all.index_select(0, index)).equal(all));
  }
}

TEST_P(CouplingTest, MixesRows) {
  const Rows all = rows(normals(8, kClients, kColumns));
  Tensor coefficients = normals(9, kClients, kClients);
  const Tensor exact = at::matmul(coefficients, all.values.to(at::kDouble));
  const Rows expected = whole_.mix(coefficients, all);
  // Rounded once, to the type of the rows.
  const double bound = type_ == at::kDouble ? 1e-14 : 6e-8;
  EXPECT_LT(expected.values.to(at::kDouble).sub(exact).norm().div(exact.norm()).item<double>(),
            bound);
  // Rows of other ranks' clients are not read.
  Tensor seen = at::full({kClients, kClients}, std::nan(""), at::kDouble);
  for (const std::int64_t position : positions_) seen[position].copy_(coefficients[position]);
  const Rows found = coupling_.mix(seen, mine(all));
  EXPECT_EQ(found.layout, layout_);
  EXPECT_TRUE(found.values.equal(mine(expected).values));  // bit for bit
}

TEST_P(CouplingTest, PassesOverCoefficientsOfZero) {
  Tensor values = normals(10, kClients, kColumns);
  values[4].fill_(std::nan(""));
  values[5].fill_(std::numeric_limits<double>::infinity());
  const Rows all = rows(values);
  Tensor coefficients = at::zeros({kClients, kClients}, at::kDouble);
  for (std::int64_t i = 0; i < kClients; ++i) coefficients[i][(i + 1) % 4].fill_(1);
  coefficients[7][4].fill_(1);
  const Rows mixed = coupling_.mix(coefficients, mine(all));
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const Tensor row = mixed.values[static_cast<std::int64_t>(i)];
    if (positions_[i] == 7) {
      EXPECT_TRUE(row.isnan().all().item<bool>());
    } else {
      EXPECT_TRUE(row.equal(all.values[(positions_[i] + 1) % 4]));
    }
  }
}

TEST_P(CouplingTest, ApproachesRows) {
  const Rows all = rows(normals(13, kClients, kColumns));
  Tensor shares = normals(14, kClients, kClients);
  const Tensor values = all.values.to(at::kDouble);
  const Tensor exact =
      values.add(at::matmul(shares, values)).sub(values.mul(shares.sum(1, /*keepdim=*/true)));
  const Rows expected = whole_.approach(shares, all);
  const double bound = type_ == at::kDouble ? 1e-14 : 6e-8;
  EXPECT_LT(expected.values.to(at::kDouble).sub(exact).norm().div(exact.norm()).item<double>(),
            bound);
  // Rows of other ranks' clients are not read.
  Tensor seen = at::full({kClients, kClients}, std::nan(""), at::kDouble);
  for (const std::int64_t position : positions_) seen[position].copy_(shares[position]);
  EXPECT_TRUE(coupling_.approach(seen, mine(all)).values.equal(mine(expected).values));
  // Nothing to approach, or nobody who differs: not a bit changes.
  const Tensor none = at::zeros({kClients, kClients}, at::kDouble);
  EXPECT_TRUE(coupling_.approach(none, mine(all)).values.equal(mine(all).values));
  const Rows equal = rows(normals(15, 1, kColumns).repeat({kClients, 1}));
  EXPECT_TRUE(coupling_.approach(shares, mine(equal)).values.equal(mine(equal).values));
}

TEST_P(CouplingTest, EditsColumnsOfAllClients) {
  const Tensor values = at::arange(kClients * kColumns, at::kDouble).reshape({kClients, kColumns});
  const Rows all = rows(values);
  const Rows own = mine(all);
  const Tensor slab = coupling_.to_columns(own);
  const auto [begin, end] = coupling_.own_columns(kColumns);
  EXPECT_TRUE(slab.equal(all.values.slice(1, begin, end)));
  slab.add_(slab.sum(0, /*keepdim=*/true));  // of integers below 2^24: exact
  coupling_.from_columns_(own, slab);
  EXPECT_TRUE(own.values.equal(mine(rows(values.add(values.sum(0, true)))).values));
}

TEST_P(CouplingTest, GivesOneRankTheOnlyColumn) {
  const LayoutPtr one = layout_of(1);
  const Rows own{at::full({std::ssize(positions_), 1}, 2, type_), one};
  const Tensor slab = coupling_.to_columns(own);
  Tensor columns = at::full({1}, slab.size(1), at::kLong);
  world_->sum_(columns);
  EXPECT_EQ(columns.item<std::int64_t>(), 1);
  coupling_.from_columns_(own, slab.mul(3));
  EXPECT_TRUE(own.values.equal(at::full({std::ssize(positions_), 1}, 6, type_)));
}

TEST_P(CouplingTest, TakesMoreColumnsThanOneSlab) {
  const std::int64_t columns =
      Coupling::kSlabBytes / kClients / static_cast<std::int64_t>(c10::elementSize(type_)) + 1000;
  const LayoutPtr layout = layout_of(columns);
  // Integers: every sum is exact in any order.
  const Tensor values =
      at::arange(kClients * columns, at::kDouble).remainder(17).reshape({kClients, columns});
  const Rows all{values.to(type_), layout};
  const Rows own = mine(all);
  const Tensor gram = at::matmul(values, values.t());
  EXPECT_TRUE(coupling_.dots(own, own, {{0, columns}}).equal(gram));
  const Tensor coefficients =
      at::arange(kClients * kClients, at::kDouble).reshape({kClients, kClients});
  const Rows expected{at::matmul(coefficients, values).to(type_), layout};
  const std::int64_t before = world_->traffic().bytes;
  EXPECT_TRUE(coupling_.mix(coefficients, own).values.equal(mine(expected).values));
  // Every rank hands over its own rows once.
  EXPECT_EQ(world_->traffic().bytes - before, static_cast<std::int64_t>(own.values.nbytes()));
}

TEST_P(CouplingTest, RefusesWhatDoesNotFit) {
  const Rows all = rows(normals(11, kClients, kColumns));
  const Rows own = mine(all);
  const Rows other_layout{own.values, layout_of(kColumns)};
  EXPECT_THROW(coupling_.squared_distances(own, other_layout, all_columns_), std::logic_error);
  EXPECT_THROW(coupling_.squared_distances(own, own, {{0, kColumns + 1}}), std::logic_error);
  EXPECT_THROW(coupling_.dots(own, own, {{5, 4}}), std::logic_error);
  EXPECT_THROW(coupling_.dots(own, own, all_columns_, rows(normals(12, 2, kColumns))),
               std::logic_error);
  const Rows one_more{at::zeros({own.count() + 1, kColumns}, type_), layout_};
  EXPECT_THROW(coupling_.mix(at::zeros({kClients, kClients}, at::kDouble), one_more),
               std::logic_error);
  EXPECT_THROW(coupling_.mix(at::zeros({kClients, kClients}, at::kFloat), own), std::logic_error);
  EXPECT_THROW(coupling_.mix(at::zeros({kClients, 2}, at::kDouble), own), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Spreads, CouplingTest,
                         ::testing::Values(Case{interleaved, at::kFloat, "InterleavedFloat"},
                                           Case{interleaved, at::kDouble, "InterleavedDouble"},
                                           Case{on_one_rank, at::kFloat, "OnOneRankFloat"},
                                           Case{on_one_rank, at::kDouble, "OnOneRankDouble"},
                                           Case{uneven, at::kFloat, "UnevenFloat"},
                                           Case{uneven, at::kDouble, "UnevenDouble"}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Coupling, RefusesAClientOnTwoRanks) {
  const auto world = world_communicator(60);
  const std::vector<std::int64_t> twice{3, 3};
  EXPECT_THROW(Coupling(*world, twice), std::logic_error);
}

TEST(Coupling, GivesNothingForNobody) {
  const auto world = world_communicator(60);
  const Coupling coupling(*world, {});
  const Rows none{at::zeros({0, 5}), layout_of(5)};
  EXPECT_EQ(coupling.squared_distances(none, none, {{0, 5}}).numel(), 0);
  EXPECT_EQ(coupling.mix(at::zeros({0, 0}, at::kDouble), none).values.sizes().vec(),
            (std::vector<std::int64_t>{0, 5}));
  coupling.from_columns_(none, coupling.to_columns(none));
}

}  // namespace
}  // namespace fedhpc
