#include <algorithm>

#include "fedhpc/math/products.hpp"

#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

namespace fedhpc {

namespace {

/// Products [M, K] x [K, N], `count` of each sample.
class MatMul final : public Layer {
 public:
  MatMul(std::int64_t count, std::int64_t m, std::int64_t k, std::int64_t n)
      : count_(count), m_(m), k_(k), n_(n) {}

  std::int64_t output_features() const override { return count_ * m_ * n_; }
  double forward_flops() const override { return 2.0 * static_cast<double>(count_ * m_ * k_ * n_); }
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override {
    product(pass, inputs[0], {m_, k_}, Transpose::No, inputs[1], {k_, n_}, Transpose::No, output,
            {m_, n_});
  }
  void backward(const Pass& pass, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (input_gradients[0].defined()) {
      product(pass, output_gradient, {m_, n_}, Transpose::No, inputs[1], {k_, n_}, Transpose::Yes,
              input_gradients[0], {m_, k_});
    }
    if (input_gradients[1].defined()) {
      product(pass, inputs[0], {m_, k_}, Transpose::Yes, output_gradient, {m_, n_}, Transpose::No,
              input_gradients[1], {k_, n_});
    }
  }

 private:
  struct Sides {
    std::int64_t rows;
    std::int64_t columns;
  };

  /// The products of all samples, of all clients at once where no gap lies between them.
  void product(const Pass& pass, const Tensor& a, Sides of_a, Transpose transpose_a,
               const Tensor& b, Sides of_b, Transpose transpose_b, const Tensor& result,
               Sides of_result) const {
    const bool together = a.is_contiguous() && b.is_contiguous() && result.is_contiguous();
    const std::int64_t parts = together ? 1 : result.size(0);
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto matrices = [&](const Tensor& stack, Sides sides) {
        const Tensor some = together ? stack : stack[part];
        return matrices_of(some.view({-1, sides.rows, sides.columns}));
      };
      batched_product(result.scalar_type(), count_ * result.size(1) * result.size(0) / parts, 1,
                      matrices(a, of_a), transpose_a, matrices(b, of_b), transpose_b, 0,
                      matrices(result, of_result), pass.arithmetic);
    }
  }

  std::int64_t count_;
  std::int64_t m_;
  std::int64_t k_;
  std::int64_t n_;
};

}  // namespace

MadeLayer make_matmul_layer(const LineReader& line) {
  const std::vector<Shape>& inputs = line.inputs(2, 2);
  const Shape& a = inputs[0];
  const Shape& b = inputs[1];
  const bool fits = a.size() >= 2 && a.size() == b.size() && a.back() == b[b.size() - 2] &&
                    std::equal(a.begin(), a.end() - 2, b.begin());
  line.check(fits, concat("values of shapes ", at::IntArrayRef(a), " and ", at::IntArrayRef(b),
                          " have no product"));
  Shape shape = a;
  shape.back() = b.back();
  const std::int64_t m = a[a.size() - 2];
  return {std::make_unique<MatMul>(values_of(a) / (m * a.back()), m, a.back(), b.back()), shape};
}

}  // namespace fedhpc
