#include "fedhpc/models/row_numbers.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace fedhpc {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// 3 trainable columns, 2 buffers, 1 trainable one.
LayoutPtr layout() {
  auto layout = std::make_shared<Layout>();
  layout->add("weight", {3}, 3, Tag::Trainable);
  layout->add("running_mean", {2}, 2, Tag::Buffer);
  layout->add("bias", {1}, 3, Tag::Trainable);
  return layout;
}

TEST(RowNumbers, AreComputedWithNumberByNumber) {
  const RowNumbers a(std::vector<double>{4, 0, -1});
  const RowNumbers b(std::vector<double>{2, 5, 8});
  EXPECT_EQ((1 + a).values(), (std::vector<double>{5, 1, 0}));
  EXPECT_EQ((-3 * a).values(), (std::vector<double>{-12, 0, 3}));
  EXPECT_EQ((a / b).values(), (std::vector<double>{2, 0, -0.125}));
  EXPECT_EQ((8 / b).values(), (std::vector<double>{4, 1.6, 1}));
  EXPECT_EQ(sqrt(1 + a).values(), (std::vector<double>{std::sqrt(5.0), 1, 0}));
  EXPECT_EQ(where_positive(a, b).values(), (std::vector<double>{2, 0, 0}));
  EXPECT_EQ(where_positive(RowNumbers(std::vector<double>{kNan, 1, 0}), b).values(),
            (std::vector<double>{0, 5, 0}));
  EXPECT_EQ(at_most(RowNumbers(std::vector<double>{0.5, kNan, 3}), 1).values(),
            (std::vector<double>{0.5, 1, 1}));
  EXPECT_EQ(a.count(), 3);
  EXPECT_EQ(RowNumbers().count(), 0);
  EXPECT_THROW(a / RowNumbers(std::vector<double>{1}), std::logic_error);
}

TEST(RowNumbers, ScaleRows) {
  const Rows rows{at::randn({3, 6}), layout()};
  const Rows scaled = rows.clone();
  scale_(scaled, RowNumbers(std::vector<double>{1, -2, 0.1}));
  EXPECT_TRUE(scaled.values[0].equal(rows.values[0]));
  EXPECT_TRUE(scaled.values[1].equal(-2 * rows.values[1]));
  EXPECT_TRUE(scaled.values[2].equal(rows.values[2] * at::tensor(0.1F)));
  EXPECT_THROW(scale_(rows, RowNumbers(std::vector<double>{1, 2})), std::logic_error);
}

TEST(RowNumbers, AddRowsOnColumnsOfATagAsOneFactorDoes) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Rows a{at::randn({3, 6}, type), layout()};
    const Rows b{at::randn({3, 6}, type), a.layout};
    b.values[1][0].fill_(std::numeric_limits<double>::infinity());
    const std::vector<double> factors{0.3, 0, -1.7};
    const Rows added{at::ones({3, 6}, type), a.layout};
    const Rows moved = added.clone();
    const Rows added_alone = added.clone();
    const Rows moved_alone = added.clone();
    add_columns_(added, RowNumbers(factors), b, Tag::Trainable);
    add_difference_(moved, RowNumbers(factors), a, b, Tag::Trainable);
    for (const std::int64_t c : {0, 2}) {
      const double factor = factors[static_cast<std::size_t>(c)];
      add_columns_(added_alone.narrow(c).values, b.narrow(c).values, factor, *a.layout,
                   Tag::Trainable);
      add_difference_(moved_alone.narrow(c).values, a.narrow(c).values, b.narrow(c).values, factor,
                      *a.layout, Tag::Trainable);
    }
    EXPECT_TRUE(added.values.equal(added_alone.values)) << "a row of factor 0 is not touched";
    EXPECT_TRUE(moved.values.equal(moved_alone.values));
  }
}

TEST(RowNumbers, StandBesideRowsInTheirType) {
  const Rows rows{at::ones({2, 6}), layout()};
  const Tensor numbers = at::tensor({0.1, 0.2}, at::kDouble).unsqueeze(1);
  EXPECT_TRUE(beside(rows, numbers).equal(numbers.to(at::kFloat)));
  EXPECT_TRUE(
      RowNumbers(std::vector<double>{0.1, 0.2}).column(rows.values).equal(numbers.to(at::kFloat)));
  EXPECT_TRUE(float64_values(rows).equal(at::ones({2, 6}, at::kDouble)));
  const Rows wide{at::ones({2, 6}, at::kDouble), rows.layout};
  EXPECT_TRUE(float64_values(wide).is_same(wide.values)) << "no copy";
}

TEST(Rows, AtPlacesAreTheRowsThemselvesWhereTheyFollowEachOther) {
  const Rows rows{at::randn({5, 6}), layout()};
  const std::vector<std::int64_t> neighbours{1, 2, 3};
  const std::vector<std::int64_t> apart{4, 0, 2};
  const std::vector<std::int64_t> nowhere;
  const Rows seen = rows.at(neighbours);
  EXPECT_EQ(seen.values.const_data_ptr(), rows.values[1].const_data_ptr());
  EXPECT_EQ(seen.count(), 3);
  const Rows copies = rows.at(apart);
  EXPECT_TRUE(copies.values.equal(at::stack({rows.values[4], rows.values[0], rows.values[2]})));
  EXPECT_EQ(rows.at(nowhere).count(), 0);

  for (const std::vector<std::int64_t>& places : {neighbours, apart, nowhere}) {
    const Rows target = rows.clone();
    const Rows some = target.at(places);
    some.values.add_(1);
    target.put_(places, some);
    const Rows expected = rows.clone();
    for (const std::int64_t place : places) expected.values[place].add_(1);
    EXPECT_TRUE(target.values.equal(expected.values));
    target.put_(places, rows.at(places));  // other rows than those of at()
    EXPECT_TRUE(target.values.equal(rows.values));
  }
  EXPECT_THROW(rows.put_(apart, seen.narrow(0)), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
