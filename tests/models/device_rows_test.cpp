#include <cmath>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fedhpc/models/row_measures.hpp"

#include "fixtures/device.hpp"
#include "fixtures/device_passes.hpp"

// Rows on a device against the same on the host.
namespace fedhpc::testing {
namespace {

class DeviceRows : public DeviceTest {
 protected:
  DeviceRows() {
    auto layout = std::make_shared<Layout>();
    layout->add("conv.weight", {2, 3}, 3, Tag::Trainable);
    layout->add("bn.weight", {2}, 2, Tag::Trainable | Tag::Norm | Tag::Uncompressed);
    layout->add("bn.running_mean", {2}, 2, Tag::Buffer | Tag::Uncompressed);
    layout->add("fc.weight", {1, 3}, 3, Tag::Trainable | Tag::Head);
    layout_ = layout;
  }

  Rows draw(std::int64_t count, at::ScalarType type) const {
    return {at::randn({count, layout_->size()}, type), layout_};
  }
  static Rows there(const Rows& rows) { return {rows.values.clone().to(at::kCUDA), rows.layout}; }

  LayoutPtr layout_;
};

TEST_F(DeviceRows, AreAddedAsOnTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double within = type == at::kDouble ? 1e-15 : 1e-6;
    const Rows a = draw(3, type);
    const Rows b = draw(3, type);
    const Rows c = draw(3, type);
    const auto expect = [&](auto&& work) {
      const Rows here = a.clone();
      const Rows moved = there(a);
      work(here, b, c);
      work(moved, there(b), there(c));
      expect_near(moved.values.cpu(), here.values, within, "rows");
    };
    for (const Tag tag : {Tag::Trainable, Tag::Buffer, Tag::Norm}) {
      expect([&](const Rows& to, const Rows& x, const Rows&) {
        add_columns_(to.values, x.values, 0.3, *layout_, tag);
      });
      expect([&](const Rows& to, const Rows& x, const Rows& y) {
        add_difference_(to.values, x.values, y.values, -0.7, *layout_, tag);
      });
      expect([&](const Rows& to, const Rows&, const Rows&) { scale_columns_(to, 0.4, tag); });
      expect([&](const Rows& to, const Rows& x, const Rows&) { copy_columns_(to, x, tag); });
    }
    expect([&](const Rows& to, const Rows& x, const Rows&) {
      add_columns_(to.values, x.values.narrow(0, 1, 1).expand({3, -1}), 0.3, *layout_,
                   Tag::Trainable);
    });
    expect([&](const Rows& to, const Rows& x, const Rows&) { approach_(to, x, 0.25); });
    expect([&](const Rows& to, const Rows& x, const Rows& y) {
      to.values.copy_((2.0 * (x - y) + y).values);
    });
  }
}

TEST_F(DeviceRows, PartsAreTakenPutAndAdded) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Rows from = draw(3, type);
    const RowNumbers fa(std::vector<double>{0.25, -1, 0});
    const RowNumbers fb(std::vector<double>{-2, 0.5, 0});
    const RowNumbers none(std::vector<double>{0, 0, 0});
    for (const Columns& columns : {Columns{.with = Tag::Trainable}, Columns{.with = Tag::Head},
                                   Columns{.with = Tag::Buffer}, Columns{}}) {
      const RowPart part(layout_, columns);
      const Rows a{at::randn({3, part.layout()->size()}, type), part.layout()};
      const Rows b{at::randn({3, part.layout()->size()}, type), part.layout()};
      const Rows to = draw(3, type);
      const Rows moved = there(to);
      part.add_two(to, from, fa, a, fb, b);
      part.add_two(moved, there(from), fa, there(a), fb, there(b));
      expect_near(moved.values.cpu(), to.values, type == at::kDouble ? 1e-15 : 1e-6, "sum");
      part.add_two(moved, moved, none, there(a), none, there(b));  // in place
      expect_near(moved.values.cpu(), to.values, 1e-6, "the same rows");
      part.put_(moved, there(a));
      EXPECT_TRUE(part.of(moved).values.cpu().equal(a.values));
    }
  }
}

TEST_F(DeviceRows, AreMeasuredAsOnTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Rows rows = draw(3, type);
    const Rows other = draw(3, type);
    rows.values.masked_fill_(rows.values.abs().lt(0.2), 0);
    rows.values[1][0] = std::nan("");
    const Rows moved = there(rows);
    EXPECT_EQ(count_nonzero(moved), count_nonzero(rows));
    EXPECT_EQ(densities(moved), densities(rows));
    zero_small_(rows, 0.5);
    zero_small_(moved, 0.5);
    EXPECT_EQ(count_nonzero(moved), count_nonzero(rows));
    EXPECT_TRUE(
        moved.values.cpu().eq(rows.values).logical_or(rows.values.isnan()).all().item<bool>());
    EXPECT_EQ(count_plateaus(moved), count_plateaus(rows));
    const std::vector<double> expected = squared_lengths(other).values();
    const std::vector<double> actual = squared_lengths(there(other)).values();
    for (std::size_t c = 0; c < expected.size(); ++c) {
      EXPECT_NEAR(actual[c], expected[c], 1e-14 * expected[c]);
    }
    EXPECT_TRUE(squared_lengths({moved.values.narrow(0, 0, 0), layout_}).values().empty());
    const Rows a = draw(3, type);
    const Rows b = draw(3, type);
    for (const Rows& with : {b, b.narrow(1)}) {
      const RowProducts here = inner_products(a, with);
      const RowProducts device = inner_products(there(a), there(with));
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(device.aa.values()[c], here.aa.values()[c], 1e-14 * here.aa.values()[c]);
        EXPECT_NEAR(device.ab.values()[c], here.ab.values()[c], 1e-14 * here.aa.values()[c]);
      }
    }
    const ColumnRanges ranges{{0, 2}, {5, 9}};
    const Tensor some = inner_products(a, b, ranges);
    EXPECT_LT((inner_products(there(a), there(b), ranges) - some).abs().max().item<double>(),
              1e-13);
    EXPECT_TRUE(float64_values(there(a)).equal(float64_values(a)));
  }
}

TEST_F(DeviceRows, AreMovedByNumbersOfRowsAsOnTheHost) {
  const std::vector<std::int64_t> neighbours{1, 2};
  const std::vector<std::int64_t> apart{2, 0};
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double within = type == at::kDouble ? 1e-14 : 1e-6;
    const Rows a = draw(3, type);
    const Rows b = draw(3, type);
    const auto expect = [&](auto&& work) {
      const Rows here = a.clone();
      const Rows moved = there(a);
      const Rows other = there(b);
      const std::int64_t before = waits_for_device();
      work(moved, other);
      EXPECT_EQ(waits_for_device(), before);
      work(here, b);
      expect_near(moved.values.cpu(), here.values, within, "rows");
    };
    expect([&](const Rows& rows, const Rows& other) {
      scale_(rows, at_most(2 / sqrt(squared_lengths(other)), 0.7));
    });
    expect([&](const Rows& rows, const Rows& other) {
      const RowProducts of = inner_products(other, rows);
      const RowNumbers h = where_positive(of.ab, 0.15 * (1 + of.aa) / of.ab);
      add_columns_(rows, h, other, Tag::Trainable);
    });
    expect([&](const Rows& rows, const Rows& other) {
      add_difference_(rows, RowNumbers(std::vector<double>{0.5, 0, -3}), other, rows.clone(),
                      Tag::Trainable);
    });
    for (const std::vector<std::int64_t>& places : {neighbours, apart}) {
      expect([&](const Rows& rows, const Rows& other) {
        const Rows some = rows.at(places);
        some.values.add_(1);
        rows.put_(places, some);
        other.put_(places, rows.at(places));
        rows.values.add_(other.values);
      });
    }
    // A row of factor 0 stays, whatever is added.
    const Rows moved = there(a);
    const Rows wild = there(b);
    wild.values.narrow(0, 1, 1).fill_(std::nan(""));
    add_columns_(moved, RowNumbers(std::vector<double>{1, 0, 2}), wild, Tag::Trainable);
    EXPECT_TRUE(moved.values.cpu()[1].equal(a.values[1]));
  }
}

}  // namespace
}  // namespace fedhpc::testing
