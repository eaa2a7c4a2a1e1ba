// Products, a device's own and those in order, against LibTorch's; contractions and row products.

#include <functional>
#include <stdexcept>

#include "gpu/blas_product.hpp"
#include "gpu/kernel_case.hpp"

namespace fedhpc::test {

namespace {

enum class Order { Any, Inner };
constexpr Order kBoth[] = {Order::Any, Order::Inner};

struct Shape {
  std::int64_t count, rows, columns, inner;
};

/// X as it is stored: itself, or its transpose.
Tensor stored(const Tensor& x, bool turned) { return turned ? x.transpose(1, 2).contiguous() : x; }

class ProductKernels : public KernelTest {
 protected:
  Placed place(const Tensor& values, Gaps gaps = Gaps::None) const {
    return {values, gaps, place_of(on_device())};
  }

  void take(Order order, const DeviceProduct& product) const {
    order == Order::Any ? kernels().product(product) : kernels().product_in_order(product);
  }

  /// alpha a b + beta old [C, rows, columns], of factors that may be stored as their transposes.
  Tensor multiply(Order order, const Tensor& a, const Tensor& b, const Tensor& old,
                  Gaps gaps = Gaps::None, bool turn_a = false, bool turn_b = false, double beta = 0,
                  double alpha = 1.5) const {
    const Placed at = place(stored(a, turn_a), gaps);
    const Placed bt = place(stored(b, turn_b), gaps);
    const Placed result = place(old, gaps);
    const Placed room = place(at::full(
        {a.size(0), DeviceProduct::parts_of(a.size(2)), a.size(1), b.size(2)}, kNan, type()));
    take(order, {.type = real(),
                 .count = a.size(0),
                 .rows = a.size(1),
                 .columns = b.size(2),
                 .inner = a.size(2),
                 .alpha = alpha,
                 .beta = beta,
                 .a = at.matrices(turn_a),
                 .b = bt.matrices(turn_b),
                 .result = result.matrices(),
                 .parts = room.matrices().data});
    return result.values();
  }

  Tensor in_order(const Tensor& a, const Tensor& b, Gaps gaps = Gaps::None) const {
    return multiply(Order::Inner, a, b, at::full({a.size(0), a.size(1), b.size(2)}, kNan, type()),
                    gaps);
  }
};

TEST_P(ProductKernels, OfStacksWithEveryTranspositionAndScale) {
  for (const auto& [count, rows, columns, inner] :
       {Shape{3, 5, 7, 4}, Shape{1, 1, 9, 3}, Shape{2, 8, 1, 1}, Shape{4, 16, 32, 8},
        Shape{2, 33, 70, 37}, Shape{1, 64, 128, 32}}) {
    const Tensor a = random({count, rows, inner});
    const Tensor b = random({count, inner, columns});
    const Tensor old = random({count, rows, columns});
    for (const Gaps gaps : kAllGaps) {
      for (const int which : {0, 1, 2, 3}) {
        for (const double beta : {0.0, -0.5}) {
          for (const Order order : kBoth) {
            const Tensor before = beta == 0 ? at::full_like(old, kNan) : old;
            expect_close(multiply(order, a, b, before, gaps, which % 2 > 0, which / 2 > 0, beta),
                         1.5 * a.matmul(b) + beta * old, 4);
          }
        }
      }
    }
  }
}

TEST_P(ProductKernels, WithOneFactorForAll) {
  const Tensor a = random({1, 4, 3});
  const Tensor b = random({5, 3, 6});
  const Placed at = place(a);
  const Placed bt = place(b);
  DeviceMatrices same = at.matrices();
  same.stack_stride = 0;
  for (const Order order : kBoth) {
    const Placed result = place(at::zeros({5, 4, 6}, type()));
    take(order, {.type = real(),
                 .count = 5,
                 .rows = 4,
                 .columns = 6,
                 .inner = 3,
                 .a = same,
                 .b = bt.matrices(),
                 .result = result.matrices()});
    expect_close(result.values(), a.matmul(b));
  }
}

TEST_P(ProductKernels, OverNothingKeepTheirShare) {
  const Tensor old = random({2, 3, 5});
  for (const Order order : kBoth) {
    const Tensor none = at::empty({2, 3, 0}, type());
    expect_close(multiply(order, none, none.reshape({2, 0, 5}), old, Gaps::None, false, false, 2),
                 2 * old);
  }
}

TEST(BlasProductTest, RefusesWhatCuBlasWould) {
  double memory[64]{};
  const DeviceMatrices matrix{.data = memory, .stack_stride = 16, .row_stride = 4};
  const DeviceProduct sound{.type = DType::Float64,
                            .count = 2,
                            .rows = 4,
                            .columns = 4,
                            .inner = 4,
                            .a = matrix,
                            .b = matrix,
                            .result = matrix};
  EXPECT_NO_THROW(BlasProduct(sound).check());
  const auto refused = [&](const std::function<void(BlasProduct&)>& spoil) {
    BlasProduct product(sound);
    spoil(product);
    EXPECT_THROW(product.check(), std::logic_error);
  };
  refused([](BlasProduct& p) { p.count = -1; });
  refused([](BlasProduct& p) { p.first.leading = 3; });
  refused([](BlasProduct& p) { p.second.leading = 0; });
  refused([](BlasProduct& p) { p.result_leading = 3; });
  refused([](BlasProduct& p) { p.result_stack_stride = 15; });
  refused([](BlasProduct& p) { p.first.data = nullptr; });
  refused([](BlasProduct& p) { p.result = nullptr; });
}

TEST_P(ProductKernels, OfRoundedFactorsAreAsPreciseAsTheirNames) {
  const Tensor a = random({2, 16, 64});
  const Tensor b = random({2, 64, 8});
  const Tensor bound = a.abs().matmul(b.abs());
  const Placed at = place(a);
  const Placed bt = place(b);
  for (const Precision precision : {Precision::Tf32, Precision::Bf16}) {
    for (const Order order : kBoth) {
      const Placed result = place(at::zeros({2, 16, 8}, type()));
      take(order, {.type = real(),
                   .precision = precision,
                   .count = 2,
                   .rows = 16,
                   .columns = 8,
                   .inner = 64,
                   .a = at.matrices(),
                   .b = bt.matrices(),
                   .result = result.matrices()});
      const double unit = precision == Precision::Tf32 ? 0x1p-10 : 0x1p-7;
      const Tensor error = (result.values() - a.matmul(b)).abs();
      EXPECT_TRUE(error.le(unit * bound).all().item<bool>());
      // and, where it is the project's own kernel, not more precise: factors have been rounded
      if (type() == at::kFloat && order == Order::Inner) {
        EXPECT_GT(error.max().item<double>(), unit / 64);
      }
    }
  }
}

TEST_P(ProductKernels, InOrderAnEntryIsItsRowsAndColumnsAlone) {
  for (const std::int64_t inner : {150, 1024, 2500}) {
    const Tensor a = random({5, 41, inner});
    const Tensor b = random({5, inner, 90});
    const Tensor all = in_order(a, b);
    expect_close(all, 1.5 * a.matmul(b), inner > 150 ? 32 : 8);
    for (const Gaps gaps : kAllGaps) EXPECT_TRUE(in_order(a, b, gaps).equal(all));
    for (const std::int64_t c : {0, 4}) {
      EXPECT_TRUE(in_order(a.narrow(0, c, 1), b.narrow(0, c, 1)).equal(all.narrow(0, c, 1)));
    }
    const auto part = [](const Tensor& x, std::int64_t dimension, std::int64_t first,
                         std::int64_t count) {
      return x.narrow(dimension, first, count).contiguous();
    };
    EXPECT_TRUE(
        in_order(part(a, 1, 7, 34), part(b, 2, 3, 70)).equal(all.narrow(1, 7, 34).narrow(2, 3, 70)))
        << "another tile";
    const auto turned = [&](bool turn_a, bool turn_b) {
      return multiply(Order::Inner, a, b, all, Gaps::None, turn_a, turn_b);
    };
    EXPECT_TRUE(turned(true, false).equal(all));
    EXPECT_TRUE(turned(false, true).equal(all));
    Tensor with_nan = a.clone();
    with_nan[2][40].fill_(kNan);
    const Tensor beside = in_order(with_nan, b);
    EXPECT_TRUE(beside[2][40].isnan().all().item<bool>());
    EXPECT_TRUE(beside[2].narrow(0, 0, 40).equal(all[2].narrow(0, 0, 40)));
    EXPECT_TRUE(beside.narrow(0, 3, 2).equal(all.narrow(0, 3, 2)));
  }
}

TEST_P(ProductKernels, ContractionsOverEitherDimension) {
  for (const auto& [clients, prefix, size, rank] :
       {Shape{3, 4, 5, 2}, Shape{1, 1, 7, 9}, Shape{2, 30, 1, 1}, Shape{4, 6, 11, 8}}) {
    const Tensor g = random({clients, prefix, size, rank});
    const Tensor given = placed(g);
    for (const Gaps gaps : kAllGaps) {
      for (const int over : {1, 2}) {
        const Tensor factor = random({clients, g.size(over), rank});
        const Placed from = place(factor, gaps);
        const Placed out = place(at::full({clients, g.size(3 - over), rank}, kNan, type()), gaps);
        kernels().contract({.type = real(),
                            .g = {.data = given.data_ptr(),
                                  .clients = clients,
                                  .batch = g.size(3 - over),
                                  .width = rank,
                                  .client_stride = g.stride(0),
                                  .sample_stride = g.stride(3 - over)},
                            .inner_stride = g.stride(over),
                            .factor = from.stack(),
                            .out = out.stack()});
        expect_close(out.values(), g.mul(factor.unsqueeze(3 - over)).sum(over), 4);
      }
    }
  }
}

TEST_P(ProductKernels, OfResiduals) {
  // count, rows, columns and the rank of the factors
  for (const auto& [count, rows, columns, rank] :
       {Shape{1, 1, 1, 1}, Shape{3, 5, 70, 3}, Shape{2, 33, 64, 20}, Shape{1, 40, 130, 70},
        Shape{2, 8, 12, 200}}) {
    const Tensor own = random({count, rows, rank});
    const Tensor other = random({count, columns, rank});
    const Tensor w = random({count, rows, columns});
    const double deviation = std::sqrt(static_cast<double>(rank * columns));
    for (const Gaps gaps : kAllGaps) {
      for (const bool turned : {false, true}) {
        const auto gradient = [&](const Tensor& weights) {
          const Placed own_there = place(own, gaps);
          const Placed other_there = place(other, gaps);
          const Placed w_there = place(stored(weights, turned), gaps);
          const Placed out = place(at::full({count, rows, rank}, kNan, type()), gaps);
          kernels().residual_product({.type = real(),
                                      .count = count,
                                      .rows = rows,
                                      .columns = columns,
                                      .rank = rank,
                                      .scale = 0.5,
                                      .own = own_there.matrices(),
                                      .other = other_there.matrices(),
                                      .w = w_there.matrices(turned),
                                      .out = out.matrices()});
          return out.values();
        };
        const auto wide = [](const Tensor& x) { return x.to(at::kDouble); };
        const Tensor residual = wide(own).matmul(wide(other).transpose(1, 2)) - wide(w);
        expect_close(gradient(w), 0.5 * residual.matmul(wide(other)), 4 * deviation);
        // What a product in order has made of the factors leaves nothing.
        const Tensor composed =
            multiply(Order::Inner, own, other.transpose(1, 2).contiguous(), at::full_like(w, kNan),
                     gaps, false, /*turn_b=*/true, 0, /*alpha=*/1);
        EXPECT_EQ(gradient(composed).abs().max().item<double>(), 0);
      }
    }
  }
}

TEST_P(ProductKernels, OfRowsWithThemselvesAndOthers) {
  constexpr std::int64_t kPiece = DeviceRowProducts::kPiece;
  const auto sums_of = [&](const Tensor& x, const Tensor& y, Gaps gaps) {
    // Two ranges of columns: all but column 1.
    const std::int64_t count = x.size(0);
    const std::int64_t rest = x.size(1) - 2;
    const std::int64_t pieces = 1 + DeviceRowProducts::pieces_of(rest);
    const Placed at = place(x, gaps);
    const Placed other = y.defined() ? place(y, gaps) : place(x.narrow(1, 0, 1));
    const std::int64_t terms = y.defined() ? 2 : 1;
    const Tensor of_pieces = placed(at::full({terms, count, pieces}, kNan, at::kDouble));
    const Tensor sums = placed(at::full({terms, count}, kNan, at::kDouble));
    const auto behind = [&](const DeviceColumns& columns, std::int64_t by) {
      return DeviceColumns{static_cast<char*>(columns.data) + by * x.element_size(),
                           columns.stride};
    };
    for (const std::int64_t begin : {0, 2}) {
      kernels().row_products({.type = real(),
                              .rows = count,
                              .columns = begin == 0 ? 1 : rest,
                              .x = behind(at.columns(), begin),
                              .y = y.defined() ? behind(other.columns(), begin) : DeviceColumns{},
                              .first_piece = begin == 0 ? 0 : 1,
                              .pieces = pieces,
                              .sums = static_cast<double*>(of_pieces.data_ptr())});
    }
    kernels().add_pieces({.rows = terms * count,
                          .pieces = pieces,
                          .of_pieces = static_cast<const double*>(of_pieces.data_ptr()),
                          .sums = static_cast<double*>(sums.data_ptr())});
    return sums.cpu();
  };
  for (const std::int64_t columns :
       {std::int64_t{2}, std::int64_t{40}, kPiece + 2, 2 * kPiece + 9}) {
    Tensor x = random({3, columns});
    Tensor y = random({3, columns});
    const Tensor wide = x.to(at::kDouble);
    const Tensor products = at::stack({wide * wide, wide * y.to(at::kDouble)})
                                .index_fill_(2, at::tensor({1}, at::kLong), 0);
    const Tensor expected = products.sum(2);
    x.select(1, 1).fill_(kNan);
    y.select(1, 1).fill_(kNan);
    for (const Gaps gaps : kAllGaps) {
      const Tensor sums = sums_of(x, y, gaps);
      EXPECT_TRUE(at::allclose(sums, expected, 1e-12, 1e-10));
      EXPECT_TRUE(sums_of(x, {}, gaps).equal(sums.narrow(0, 0, 1)));
      EXPECT_TRUE(sums_of(x.narrow(0, 2, 1), y.narrow(0, 2, 1), gaps).equal(sums.narrow(1, 2, 1)))
          << "a row alone";
    }
  }
}

FEDHPC_KERNEL_TESTS(ProductKernels);

}  // namespace

}  // namespace fedhpc::test
