#include <algorithm>

#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>

#include "fedhpc/core/device.hpp"

#include "models/broadcast.hpp"
#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

namespace fedhpc {

namespace {

/// The mean or sum over some dimensions, which disappear.
class Reduction final : public Layer {
 public:
  enum class Kind { Mean, Sum };

  Reduction(Kind kind, Shape in, const std::vector<std::size_t>& dimensions)
      : kind_(kind), in_(std::move(in)), kept_(in_) {
    for (const std::size_t d : dimensions) {
      dimensions_.push_back(in_stack(d));
      kept_[d] = 1;
    }
    const double share =
        static_cast<double>(values_of(kept_)) / static_cast<double>(values_of(in_));
    factor_ = at::scalar_tensor(share, at::kDouble);
  }

  std::int64_t output_features() const override { return values_of(kept_); }
  double forward_flops() const override { return static_cast<double>(values_of(in_)); }
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override {
    Tensor reduced = shaped(output, kept_);
    const Tensor input = shaped(inputs[0], in_);
    if (kind_ == Kind::Sum) {
      sum_to(input, reduced, pass.arithmetic);
    } else if (pass.arithmetic.summation == Summation::Fast || !on_device(input)) {
      at::mean_out(reduced, input, at::IntArrayRef(dimensions_), true);
    } else {
      sum_to(input, reduced, pass.arithmetic);
      reduced.mul_(factor_);
    }
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (!input_gradients[0].defined()) return;
    Tensor into = shaped(input_gradients[0], in_);
    const Tensor gradient = shaped(output_gradient, kept_);
    if (kind_ == Kind::Sum) {
      into.copy_(gradient);
    } else {
      at::mul_out(into, gradient.expand(into.sizes()), factor_);
    }
  }

 private:
  Kind kind_;
  Shape in_;
  Shape kept_;                            // with length 1 where a dimension disappears
  std::vector<std::int64_t> dimensions_;  // of a stack
  Tensor factor_;
};

MadeLayer reduction_of(const LineReader& line, Reduction::Kind kind) {
  const Shape& in = line.input();
  const std::vector<std::size_t> dimensions = line.dimensions("dims", in);
  Shape shape;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (std::count(dimensions.begin(), dimensions.end(), d) == 0) shape.push_back(in[d]);
  }
  if (values_of(shape) == values_of(in)) return {nullptr, shape};
  return {std::make_unique<Reduction>(kind, in, dimensions), shape};
}

}  // namespace

MadeLayer make_mean_layer(const LineReader& line) {
  return reduction_of(line, Reduction::Kind::Mean);
}

MadeLayer make_sum_layer(const LineReader& line) {
  return reduction_of(line, Reduction::Kind::Sum);
}

}  // namespace fedhpc
