#include "fedhpc/math/products.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/math/penalty_pass.hpp"

namespace fedhpc {

namespace {

/// Matrices of random numbers whose rows and stacks have gaps that nobody may touch.
template <typename T>
struct Stack {
  std::vector<T> values;
  MatrixStack view;

  Stack(Draws& draws, std::int64_t count, std::int64_t rows, std::int64_t columns) {
    const std::int64_t row_stride = columns + draws.below(4);
    const std::int64_t stack_stride = rows * row_stride + draws.below(3);
    values.resize(static_cast<std::size_t>(count * stack_stride));
    for (T& value : values) value = static_cast<T>(draws.normal());
    view = {values.data(), stack_stride, rows, columns, row_stride};
  }

  double at(std::int64_t c, std::int64_t i, std::int64_t k, Transpose transpose) const {
    if (transpose == Transpose::Yes) std::swap(i, k);
    return values[static_cast<std::size_t>(c * view.stack_stride + i * view.row_stride + k)];
  }
};

template <typename T>
class Products : public testing::Test {};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Products, Types);

template <typename T>
void expect_product(Draws& draws, Transpose ta, Transpose tb, double beta) {
  const std::int64_t count = 1 + draws.below(3);
  const std::int64_t m = 1 + draws.below(72);  // around the largest batch of the small kernels
  const std::int64_t n = 1 + draws.below(140);
  const std::int64_t inner = 1 + draws.below(140);
  const double alpha = -0.75;
  const bool flip_a = ta == Transpose::Yes;
  const bool flip_b = tb == Transpose::Yes;
  Stack<T> a(draws, count, flip_a ? inner : m, flip_a ? m : inner);
  Stack<T> b(draws, count, flip_b ? n : inner, flip_b ? inner : n);
  Stack<T> c(draws, count, m, n);
  if (beta == 0) {  // old contents must not be read
    for (T& value : c.values) value = std::numeric_limits<T>::quiet_NaN();
  }
  Stack<T> before = c;

  batched_product(c10::CppTypeToScalarType<T>::value, count, alpha, a.view, ta, b.view, tb, beta,
                  c.view);

  for (std::int64_t k = 0; k < count; ++k) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        double size = 0;
        for (std::int64_t l = 0; l < inner; ++l) {
          sum += a.at(k, i, l, ta) * b.at(k, l, j, tb);
          size += std::abs(a.at(k, i, l, ta) * b.at(k, l, j, tb));
        }
        const double old = beta == 0 ? 0 : beta * before.at(k, i, j, Transpose::No);
        const double bound = (4.0 + static_cast<double>(inner)) * std::numeric_limits<T>::epsilon();
        ASSERT_NEAR(c.at(k, i, j, Transpose::No), alpha * sum + old,
                    bound * (size + std::abs(old)));
        c.values[static_cast<std::size_t>(k * c.view.stack_stride + i * c.view.row_stride + j)] =
            static_cast<T>(before.at(k, i, j, Transpose::No));
      }
    }
  }
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    if (std::isnan(before.values[i])) continue;
    ASSERT_EQ(c.values[i], before.values[i]) << "written outside the result";
  }
}

TYPED_TEST(Products, EqualPlainSumsInAnyShapeStrideAndOrder) {
  Draws draws({.seed = 7, .purpose = Purpose::Init});

  for (int trial = 0; trial < 40; ++trial) {
    for (const double beta : {0.0, 1.0, 0.5}) {
      for (const Transpose ta : {Transpose::No, Transpose::Yes}) {
        for (const Transpose tb : {Transpose::No, Transpose::Yes}) {
          expect_product<TypeParam>(draws, ta, tb, beta);
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

template <typename T>
void expect_pulled_product(Draws& draws, Transpose ta) {
  const at::ScalarType type = c10::CppTypeToScalarType<T>::value;
  const std::int64_t count = 1 + draws.below(3);
  const std::int64_t m = 1 + draws.below(20);
  const std::int64_t n = 1 + draws.below(300);  // any number of vectors, and parts of one
  const std::int64_t inner = 1 + draws.below(70);
  const bool flip = ta == Transpose::Yes;
  const double lr = 0.05;
  const double mu = 15;
  Stack<T> a(draws, count, flip ? inner : m, flip ? m : inner);
  Stack<T> b(draws, count, inner, n);
  Stack<T> c(draws, count, m, n);
  Stack<T> centre = c;
  centre.view.data = centre.values.data();
  for (T& value : centre.values) value += static_cast<T>(draws.normal() / 8);
  Stack<T> by_hand = c;
  Stack<T> product(draws, count, m, n);
  batched_product(type, count, 1, a.view, ta, b.view, Transpose::No, 0, product.view);
  for (std::int64_t k = 0; k < count; ++k) {
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t row = k * c.view.stack_stride + i * c.view.row_stride;
      penalised_step_(
          by_hand.values.data() + row,
          product.values.data() + k * product.view.stack_stride + i * product.view.row_stride,
          centre.values.data() + row, n, lr, {.mu = mu});
    }
  }

  ASSERT_TRUE(pulled_product_(type, count, lr, mu, a.view, ta, b.view, centre.view, c.view));

  ASSERT_EQ(c.values, by_hand.values) << m << " x " << n << " of " << inner;
}

TYPED_TEST(Products, PulledOnesAreProductsAndThenSteps) {
  Draws draws({.seed = 9, .purpose = Purpose::Init});
  for (int trial = 0; trial < 100; ++trial) {
    for (const Transpose ta : {Transpose::No, Transpose::Yes}) {
      expect_pulled_product<TypeParam>(draws, ta);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Products, PulledOnesOfBlasOrRoundedFactorsAreLeftAlone) {
  Draws draws({.seed = 10, .purpose = Purpose::Init});
  const Stack<TypeParam> a(draws, 1, 65, 3);
  const Stack<TypeParam> b(draws, 1, 65, 700);
  const Stack<TypeParam> c(draws, 1, 3, 700);
  const at::ScalarType type = c10::CppTypeToScalarType<TypeParam>::value;
  const std::vector<TypeParam> before = c.values;
  const auto take = [&](std::int64_t batch, const Arithmetic& arithmetic) {
    MatrixStack left = a.view;
    MatrixStack right = b.view;
    left.rows = right.rows = batch;
    return pulled_product_(type, 1, 0.1, 0, left, Transpose::Yes, right, c.view, c.view,
                           arithmetic);
  };
  EXPECT_FALSE(take(65, {}));
  EXPECT_EQ(take(64, {.precision = Precision::Tf32}), type == at::kDouble);
  EXPECT_EQ(c.values == before, type == at::kFloat);
  EXPECT_TRUE(take(64, {}));
}

TYPED_TEST(Products, OfAClientDoNotDependOnTheOthers) {
  Draws draws({.seed = 8, .purpose = Purpose::Init});
  constexpr std::int64_t kCount = 5;
  const Stack<TypeParam> x(draws, kCount, 20, 100);
  const Stack<TypeParam> w(draws, kCount, 30, 100);
  Stack<TypeParam> together(draws, kCount, 20, 30);
  Stack<TypeParam> alone = together;
  alone.view.data = alone.values.data();
  const at::ScalarType type = c10::CppTypeToScalarType<TypeParam>::value;

  batched_product(type, kCount, 1, x.view, Transpose::No, w.view, Transpose::Yes, 0, together.view);
  const auto shift = [](const MatrixStack& stack, std::int64_t c) {
    MatrixStack one = stack;
    one.data = static_cast<TypeParam*>(stack.data) + c * stack.stack_stride;
    return one;
  };
  for (std::int64_t c = 0; c < kCount; ++c) {
    batched_product(type, 1, 1, shift(x.view, c), Transpose::No, shift(w.view, c), Transpose::Yes,
                    0, shift(alone.view, c));
  }

  EXPECT_EQ(together.values, alone.values);
}

/// By arithmetic: a number of `bits` bits of fraction next to `value`, of two as near the even one.
float to_bits_of_fraction(float value, int bits) {
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(static_cast<double>(value), &exponent), bits + 1);
  return static_cast<float>(std::ldexp(std::nearbyint(scaled), exponent - bits - 1));
}

TEST(Factors, AreRoundedToNearestWithTiesToEven) {
  const float infinite = std::numeric_limits<float>::infinity();
  const Tensor values =
      at::tensor({1.0F, 1 + std::ldexp(1.0F, -11), 1 + std::ldexp(3.0F, -11),
                  1 + std::ldexp(1.0F, -8), -1 - std::ldexp(3.0F, -8), 3.14159265F, 1e-30F, 0.0F},
                 at::kFloat);
  for (const auto& [precision, bits] :
       {std::pair{Precision::Tf32, 10}, std::pair{Precision::Bf16, 7}}) {
    const Tensor factors = as_factors(values, precision);
    for (std::int64_t i = 0; i < values.size(0); ++i) {
      EXPECT_EQ(factors[i].item<float>(), to_bits_of_fraction(values[i].item<float>(), bits));
    }
    const Tensor odd = as_factors(at::tensor({infinite, -infinite, std::nanf("1")}), precision);
    EXPECT_EQ(odd[0].item<float>(), infinite);
    EXPECT_EQ(odd[1].item<float>(), -infinite);
    EXPECT_TRUE(std::isnan(odd[2].item<float>()));
  }
  EXPECT_TRUE(as_factors(values, Precision::Bf16).equal(values.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(as_factors(values, Precision::Fp32).is_same(values));
  const Tensor exact = values.to(at::kDouble);
  EXPECT_TRUE(as_factors(exact, Precision::Bf16).is_same(exact));
}

TEST(Factors, OfProductsAreThoseOfTheirPrecision) {
  const Tensor a = at::randn({3, 20, 50}, at::kFloat);
  const Tensor b = at::randn({3, 30, 50}, at::kFloat);
  const Tensor old = at::randn({3, 20, 30}, at::kFloat);
  for (const Precision precision : {Precision::Fp32, Precision::Tf32, Precision::Bf16}) {
    const Tensor result = old.clone();
    batched_product(at::kFloat, 3, 2, matrices_of(a), Transpose::No, matrices_of(b), Transpose::Yes,
                    0.5, matrices_of(result), {precision});
    const Tensor exact = at::matmul(as_factors(a, precision).to(at::kDouble),
                                    as_factors(b, precision).to(at::kDouble).transpose(1, 2));
    const Tensor expected = exact.mul(2).add(old, 0.5);
    EXPECT_LT(result.sub(expected).abs().max().item<double>(), 1e-4);
  }
  const Tensor exact = at::empty({3, 20, 30}, at::kDouble);
  const Tensor short_of = at::empty({3, 20, 30}, at::kDouble);
  const auto multiply = [&](const Tensor& result, Precision precision) {
    const Tensor left = a.to(at::kDouble);
    const Tensor right = b.to(at::kDouble);
    batched_product(at::kDouble, 3, 1, matrices_of(left), Transpose::No, matrices_of(right),
                    Transpose::Yes, 0, matrices_of(result), {precision});
  };
  multiply(exact, Precision::Fp32);
  multiply(short_of, Precision::Bf16);
  EXPECT_TRUE(exact.equal(short_of)) << "float64 has no other precision";
}

}  // namespace

}  // namespace fedhpc
