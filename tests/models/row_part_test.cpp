#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/models/description.hpp"
#include "fedhpc/models/row_numbers.hpp"

namespace fedhpc {
namespace {

/// conv | norm | buffer | head, of 6, 2, 2 and 3 columns.
LayoutPtr layout_of_four() {
  auto layout = std::make_shared<Layout>();
  layout->add("conv.weight", {2, 3}, 3, Tag::Trainable);
  layout->add("bn.weight", {2}, 2, Tag::Trainable | Tag::Norm | Tag::Uncompressed);
  layout->add("bn.running_mean", {2}, 2, Tag::Buffer | Tag::Uncompressed);
  layout->add("fc.weight", {1, 3}, 3, Tag::Trainable | Tag::Head);
  return layout;
}

Rows counted(const LayoutPtr& layout, std::int64_t count) {
  const std::int64_t width = layout->size();
  return {at::arange(count * width, at::kDouble).reshape({count, width}), layout};
}

TEST(Rows, NothingIsLeftOfColumnsTimesZero) {
  const Rows rows = counted(layout_of_four(), 2);
  rows.values[0][8] = HUGE_VAL;
  rows.values[1][9] = std::nan("");
  scale_columns_(rows, 0, Tag::Buffer);
  EXPECT_EQ(rows.values.narrow(1, 8, 2).abs().sum().item<double>(), 0);
  EXPECT_EQ(rows.values[1][7].item<double>(), 20);
}

TEST(RowPart, TakesAndPutsTheColumnsItIsMadeOf) {
  const LayoutPtr layout = layout_of_four();
  const Rows rows = counted(layout, 2);
  const RowPart trainable(layout, {.with = Tag::Trainable});
  const Rows part = trainable.of(rows);
  EXPECT_EQ(part.layout->size(), 11);
  EXPECT_EQ(part.layout->field("fc.weight").offset, 8);
  EXPECT_EQ(part.layout->field("conv.weight").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_FALSE(part.layout->contains("bn.running_mean"));
  EXPECT_TRUE(part.values.narrow(1, 0, 8).equal(rows.values.narrow(1, 0, 8)));
  EXPECT_TRUE(part.values.narrow(1, 8, 3).equal(rows.values.narrow(1, 10, 3)));

  const Rows target{at::full_like(rows.values, -1), layout};
  trainable.put_(target, part);
  EXPECT_TRUE(target.values.narrow(1, 8, 2).eq(-1).all().item<bool>());
  EXPECT_TRUE(trainable.of(target).values.equal(part.values));
}

TEST(RowPart, TheRestIsAllOtherColumns) {
  const LayoutPtr layout = layout_of_four();
  const Rows rows = counted(layout, 2);
  for (const RowPart& part :
       {RowPart(layout, {.with = Tag::Norm | Tag::Buffer}), RowPart(layout, 2, {}),
        RowPart(layout, 4, {}), RowPart(layout, {})}) {
    const RowPart rest = part.rest();
    EXPECT_EQ(rest.layout()->size(), layout->size() - part.layout()->size());
    const Rows joined{at::full_like(rows.values, -1), layout};
    part.put_(joined, part.of(rows));
    rest.put_(joined, rest.of(rows));
    EXPECT_TRUE(joined.values.equal(rows.values));
    EXPECT_EQ(rest.rest().layout()->size(), part.layout()->size());
  }
}

TEST(RowPart, OfTheLastFields) {
  const LayoutPtr layout = layout_of_four();
  const Rows rows = counted(layout, 2);
  const RowPart from_norm(layout, 1, {.with = Tag::Trainable});
  const Rows part = from_norm.of(rows);
  EXPECT_EQ(part.layout->size(), 5);
  EXPECT_TRUE(part.values.narrow(1, 0, 2).equal(rows.values.narrow(1, 6, 2)));
  EXPECT_TRUE(part.values.narrow(1, 2, 3).equal(rows.values.narrow(1, 10, 3)));
  const Rows target{at::full_like(rows.values, -1), layout};
  from_norm.put_(target, part);
  EXPECT_TRUE(target.values.narrow(1, 0, 6).eq(-1).all().item<bool>());
  EXPECT_TRUE(from_norm.of(target).values.equal(part.values));
  EXPECT_TRUE(RowPart(layout, 0, {}).is_whole());
  EXPECT_FALSE(RowPart(layout, 1, {}).is_whole());
  EXPECT_EQ(RowPart(layout, 1, {}).layout()->size(), 7);
}

TEST(RowPart, TwoPartsMakeTheWhole) {
  const LayoutPtr layout = layout_of_four();
  const Rows rows = counted(layout, 3);
  const RowPart head(layout, {.with = Tag::Head});
  const RowPart body(layout, {.without = Tag::Head});
  EXPECT_EQ(head.layout()->size() + body.layout()->size(), layout->size());
  const Rows joined{at::full_like(rows.values, -1), layout};
  head.put_(joined, head.of(rows));
  body.put_(joined, body.of(rows));
  EXPECT_TRUE(joined.values.equal(rows.values));
  // One row for all.
  const Rows one = counted(layout, 1);
  body.put_(joined, body.of(one));
  EXPECT_TRUE(joined.values[2].narrow(0, 0, 10).equal(one.values[0].narrow(0, 0, 10)));
  EXPECT_TRUE(joined.values[2].narrow(0, 10, 3).equal(rows.values[2].narrow(0, 10, 3)));
}

TEST(RowPart, OfAllColumnsIsTheRowsThemselves) {
  const LayoutPtr layout = layout_of_four();
  const Rows rows = counted(layout, 2);
  const RowPart all(layout, Columns{});
  EXPECT_TRUE(all.is_whole());
  EXPECT_EQ(all.layout(), layout);
  EXPECT_EQ(all.of(rows).values.const_data_ptr(), rows.values.const_data_ptr());
  EXPECT_FALSE(RowPart(layout, {.with = Tag::Trainable}).is_whole());
}

TEST(RowPart, AddsTwoRowsOfThePartAndCopiesTheRest) {
  const LayoutPtr layout = layout_of_four();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Rows from{at::randn({2, layout->size()}, type), layout};
    const Tensor fa = at::tensor({0.25, -1.}, type).unsqueeze(1);
    const Tensor fb = at::tensor({-2., 3.}, type).unsqueeze(1);
    for (const Columns& columns : {Columns{.with = Tag::Trainable}, Columns{.with = Tag::Head},
                                   Columns{.with = Tag::Buffer}, Columns{}}) {
      const RowPart part(layout, columns);
      const Rows a{at::randn({2, part.layout()->size()}, type), part.layout()};
      const Rows b{at::randn({2, part.layout()->size()}, type), part.layout()};
      const Rows to{at::full_like(from.values, 9), layout};
      part.add_two(to, from, RowNumbers(std::vector<double>{0.25, -1}), a,
                   RowNumbers(std::vector<double>{-2, 3}), b);
      const Rows expected = from.clone();
      part.put_(expected, {part.of(from).values + fa * a.values + fb * b.values, part.layout()});
      EXPECT_LT((to.values - expected.values).abs().max().item<double>(), 1e-6);
      EXPECT_TRUE(to.values.ne(from.values).sum().item<std::int64_t>() <=
                  2 * part.layout()->size());
      // A row of its own gives the same bits.
      const Rows alone{at::full_like(from.narrow(1).values, 9), layout};
      part.add_two(alone, from.narrow(1), RowNumbers(std::vector<double>{-1}), a.narrow(1),
                   RowNumbers(std::vector<double>{3}), b.narrow(1));
      EXPECT_TRUE(alone.values.equal(to.narrow(1).values));
    }
  }
}

TEST(RowPart, RefusesRowsOfOtherLayouts) {
  const LayoutPtr layout = layout_of_four();
  const RowPart head(layout, {.with = Tag::Head});
  const Rows rows = counted(layout, 1);
  EXPECT_THROW(head.of(head.of(rows)), std::logic_error);
  EXPECT_THROW(head.put_(rows, rows), std::logic_error);
}

/// The field with which the top layers of a description begin.
std::string first_of(const std::vector<std::string>& lines, std::int64_t layers) {
  ModelDescription description;
  for (const std::string& line : lines) description.add(line_of(line));
  const LayoutPtr layout = build_model(description, "a test")->layout();
  return layout->fields().at(first_of_top(*layout, layers)).name;
}

TEST(FirstOfTop, ARecurrentLayerIsOne) {
  const std::vector<std::string> lines{
      "input shape=28,28", "linear out=9 inputs=0 parameters=in.weight,in.bias",
      "lstm hidden=256 inputs=1 parameters=w,u,b,c", "reshape shape=7168 inputs=2",
      "linear out=10 inputs=3 parameters=fc.weight,fc.bias"};
  EXPECT_EQ(first_of(lines, 1), "fc.weight");
  EXPECT_EQ(first_of(lines, 2), "w");
  EXPECT_EQ(first_of(lines, 3), "in.weight");
  EXPECT_EQ(first_of(lines, 4), "in.weight");
}

TEST(FirstOfTop, NormsOfImagesAreNone) {
  const std::vector<std::string> lines{"input shape=8,8",
                                       "layer_norm dims=0,1 inputs=0 parameters=n0.weight,n0.bias",
                                       "linear out=8 inputs=1 parameters=a.weight,a.bias",
                                       "layer_norm dims=0,1 inputs=2 parameters=n.weight,n.bias",
                                       "reshape shape=64 inputs=3",
                                       "linear out=10 inputs=4 parameters=fc.weight,fc.bias"};
  EXPECT_EQ(first_of(lines, 1), "fc.weight");
  EXPECT_EQ(first_of(lines, 2), "a.weight");
  EXPECT_EQ(first_of(lines, 3), "n0.weight");
}

TEST(FirstOfTop, APartKeepsTheLayersOfTheWhole) {
  auto layout = std::make_shared<Layout>();
  for (const char* layer : {"a", "b"}) {
    layout->begin_layer();
    layout->add(concat(layer, ".w"), {2, 3}, 3, Tag::Trainable);
    layout->add(concat(layer, ".u"), {2, 2}, 2, Tag::Trainable);
  }
  layout->set_needs_pairs();
  const RowPart part(layout, 1, {});
  EXPECT_EQ(first_of_top(*part.layout(), 1), 1);
  EXPECT_EQ(first_of_top(*part.layout(), 2), 0);
  EXPECT_TRUE(part.layout()->needs_pairs());
}

}  // namespace
}  // namespace fedhpc
