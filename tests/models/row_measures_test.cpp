#include "fedhpc/models/row_measures.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace fedhpc {
namespace {

/// 21 trainable columns around 2 buffers.
LayoutPtr layout() {
  auto layout = std::make_shared<Layout>();
  layout->add("weight", {4, 3}, 3, Tag::Trainable);
  layout->add("running_mean", {2}, 2, Tag::Buffer);
  layout->add("bias", {9}, 2, Tag::Trainable);
  return layout;
}

class RowMeasures : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  RowMeasures() : rows_{at::zeros({2, 23}, GetParam()), layout()} {
    rows_.values[0][0] = -0.5;
    rows_.values[0][11] = 0.25;
    rows_.values[0][12] = 3;  // a buffer
    rows_.values[0][14] = 0.125;
    rows_.values[0][22] = -2;
    rows_.values[1][13] = 1;  // a buffer
  }

  Rows rows_;
};

TEST_P(RowMeasures, CountTrainableEntriesThatAreNotZero) {
  EXPECT_EQ(count_nonzero(rows_), (std::vector<std::int64_t>{4, 0}));
  EXPECT_EQ(densities(rows_), (std::vector<double>{4.0 / 21, 0}));
  rows_.values[1][20] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(count_nonzero(rows_).back(), 1) << "a NaN is not 0";
}

TEST_P(RowMeasures, SumSquaresOfTrainableEntries) {
  EXPECT_EQ(squared_lengths(rows_).values(),
            (std::vector<double>{0.25 + 0.0625 + 0.015625 + 4, 0}));  // exact
  EXPECT_EQ(squared_lengths(rows_.narrow(1)).values(), std::vector<double>{0});
}

TEST_P(RowMeasures, MultiplyRowsWithThoseOfOthersOrWithOne) {
  const Rows others{rows_.values.flip(0) + 1, rows_.layout};
  const RowProducts of = inner_products(rows_, others);
  EXPECT_EQ(of.aa.values(), (std::vector<double>{13.328125, 1}));
  EXPECT_EQ(of.ab.values(), (std::vector<double>{0.875, 1}));
  const RowProducts with_first = inner_products(rows_, others.narrow(1));
  EXPECT_EQ(with_first.aa.values(), of.aa.values());
  EXPECT_EQ(with_first.ab.values(), (std::vector<double>{14.203125, 1}));
  EXPECT_THROW(inner_products(rows_.narrow(0), others), std::logic_error);
  // Of some columns.
  const Tensor some = inner_products(rows_, others, {{0, 12}, {12, 14}, {22, 23}});
  EXPECT_TRUE(some.equal(at::tensor({-0.25, 3., -2., 0., 1., 0.}, at::kDouble).view({2, 3})));
  EXPECT_EQ(inner_products(rows_, others, {}).size(0), 2);
}

TEST_P(RowMeasures, CountRunsOfEqualNeighbours) {
  EXPECT_EQ(count_plateaus(rows_), (std::vector<std::int64_t>{8, 3}));
  EXPECT_EQ(count_plateaus({rows_.values.narrow(1, 0, 1), rows_.layout}),
            (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(count_plateaus({rows_.values.narrow(1, 0, 0), rows_.layout}),
            (std::vector<std::int64_t>{0, 0}));
}

TEST_P(RowMeasures, SmallEntriesBecomeZeroTheBoundIncluded) {
  zero_small_(rows_, 0.25);
  EXPECT_EQ(count_nonzero(rows_), (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(rows_.values[0][0].item<double>(), -0.5);
  EXPECT_EQ(rows_.values[0][22].item<double>(), -2);
  EXPECT_EQ(rows_.values[0][12].item<double>(), 3) << "buffers stay";
  EXPECT_EQ(rows_.values[1][13].item<double>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Types, RowMeasures, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& one) {
                           return one.param == at::kFloat ? "float32" : "float64";
                         });

}  // namespace
}  // namespace fedhpc
