// A library on a device orders its sums by the whole call, and so does the stand-in: what relies on
// one order differs from itself.
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/device_kernels.hpp"

#include "fixtures/standin.hpp"

namespace fedhpc {
namespace {

class StandinOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    Standin::get();
    at::manual_seed(1);
    a_ = at::rand({6, 5, kLong});
    b_ = at::rand({6, kLong, 4});
  }

  static constexpr std::int64_t kLong = 3000;
  Tensor a_;
  Tensor b_;
};

TEST_F(StandinOrder, SumsFollowTheNumberOfRows) {
  struct Sum {
    std::string name;
    std::function<Tensor(const Tensor& a, const Tensor& b)> of;  // [C, 5, kLong], [C, kLong, 4]
  };
  const std::vector<Sum> sums = {
      {"sum", [](const Tensor& a, const Tensor&) { return a.sum(2); }},
      {"sum over two",
       [](const Tensor& a, const Tensor&) {
         return a.sum({1, 2}, true);
       }},
      {"mean", [](const Tensor& a, const Tensor&) { return a.mean(-1); }},
      {"norm", [](const Tensor& a, const Tensor&) { return at::linalg_vector_norm(a, 2, 2); }},
      {"bmm", [](const Tensor& a, const Tensor& b) { return a.bmm(b); }},
      {"baddbmm",
       [](const Tensor& a, const Tensor& b) {
         return at::baddbmm(at::ones({a.size(0), 5, 4}, a.options()), a, b);
       }},
      {"mm", [](const Tensor& a, const Tensor& b) { return a.select(1, 0).mm(b[0]); }},
      {"addmm",
       [](const Tensor& a, const Tensor& b) {
         return at::addmm(at::ones({4}, a.options()), a.select(1, 0), b[0]);
       }},
      {"mv", [](const Tensor& a, const Tensor& b) { return a.select(1, 0).mv(b[0].select(1, 0)); }},
      {"product",
       [](const Tensor& a, const Tensor& b) {
         const Tensor out = at::empty({a.size(0), 5, 4}, a.options());
         device_kernels<MathKernels>().product(
             {.type = DType::Float32,
              .count = a.size(0),
              .rows = 5,
              .columns = 4,
              .inner = kLong,
              .a = {a.data_ptr(), a.stride(0), a.stride(1)},
              .b = {b.data_ptr(), b.stride(0), b.stride(1)},
              .result = {out.data_ptr(), out.stride(0), out.stride(1)}});
         return out;
       }},
  };
  for (const Sum& sum : sums) {
    const auto of_first = [&](std::int64_t count) {
      const Tensor a = a_.narrow(0, 0, count);
      const Tensor b = b_.narrow(0, 0, count);
      const Tensor result = sum.of(a.to(at::kCUDA), b.to(at::kCUDA)).cpu();
      const Tensor expected =
          sum.name == "product" ? a.bmm(b) : sum.of(a.to(at::kDouble), b.to(at::kDouble));
      EXPECT_TRUE(at::allclose(result.to(at::kDouble), expected.to(at::kDouble), 1e-5)) << sum.name;
      return result.narrow(0, 0, 2);
    };
    EXPECT_TRUE(of_first(3).equal(of_first(3))) << sum.name;
    EXPECT_FALSE(of_first(4).equal(of_first(3))) << sum.name << " of one more row";
  }
}

TEST_F(StandinOrder, WholeNumbersHaveNoOrder) {
  const Tensor numbers = at::arange(24).view({4, 6});
  EXPECT_TRUE(numbers.to(at::kCUDA).sum(1).cpu().equal(numbers.sum(1)));
}

}  // namespace
}  // namespace fedhpc
