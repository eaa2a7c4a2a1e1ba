#include "fedhpc/math/vector_passes.hpp"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {
namespace {

TEST(VectorPasses, EqualWhatATenGivesForAnyLength) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t count : {0, 1, 7, 15, 16, 17, 31, 100, 1000, 4099}) {
      const Tensor a = at::randn({count}, type);
      const Tensor b = at::randn({count}, type);
      const Tensor x = at::randn({count}, type);
      const Tensor wide = a.to(at::kDouble);
      InnerProducts of;
      with_type(type, [&]<typename T>() {
        of = inner_products(a.const_data_ptr<T>(), b.const_data_ptr<T>(), count);
        add_two(x.data_ptr<T>(), x.const_data_ptr<T>(), 0, a.const_data_ptr<T>(), 0,
                b.const_data_ptr<T>(), count);
      });
      const double scale = 1e-14 * static_cast<double>(count + 1);
      EXPECT_NEAR(of.aa, at::dot(wide, wide).item<double>(), 10 * scale);
      EXPECT_NEAR(of.ab, at::dot(wide, b.to(at::kDouble)).item<double>(), 10 * scale);
      const Tensor expected = x + 1.5 * a - 0.25 * b;
      const Tensor out = x.clone();
      with_type(type, [&]<typename T>() {  // into another place, and into x's own
        add_two(out.data_ptr<T>(), x.const_data_ptr<T>(), 1.5, a.const_data_ptr<T>(), -0.25,
                b.const_data_ptr<T>(), count);
        add_two(x.data_ptr<T>(), x.const_data_ptr<T>(), 1.5, a.const_data_ptr<T>(), -0.25,
                b.const_data_ptr<T>(), count);
      });
      EXPECT_TRUE(out.equal(x));
      EXPECT_TRUE(out.allclose(expected, 1e-6, 1e-6)) << count;
    }
  }
}

TEST(VectorPasses, SumsOfFloatsDoNotDrift) {
  // 0.1 as a float, squared: a float sum of 10^7 of them would be off by percents.
  constexpr std::int64_t kCount = 10'000'000;
  const std::vector<float> values(kCount, 0.1F);
  const InnerProducts of = inner_products(values.data(), values.data(), kCount);
  const double square = static_cast<double>(0.1F) * static_cast<double>(0.1F);
  EXPECT_NEAR(of.aa / (square * kCount), 1, 1e-10);
  EXPECT_EQ(of.aa, of.ab);
}

}  // namespace
}  // namespace fedhpc
