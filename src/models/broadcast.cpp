#include "models/broadcast.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"

#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

namespace fedhpc {

Shape with_dimensions(const Shape& shape, std::size_t count) {
  Shape longer(count - shape.size(), 1);
  longer.insert(longer.end(), shape.begin(), shape.end());
  return longer;
}

bool broadcasts(const Shape& shape, const Shape& to) {
  if (shape.size() > to.size()) return false;
  const Shape longer = with_dimensions(shape, to.size());
  return std::equal(longer.begin(), longer.end(), to.begin(),
                    [](std::int64_t one, std::int64_t other) { return one == 1 || one == other; });
}

void sum_to(const Tensor& from, const Tensor& to, const Arithmetic& arithmetic) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t d = 0; d < to.dim(); ++d) {
    if (to.size(d) != from.size(d)) dimensions.push_back(d);
  }
  if (dimensions.empty()) {
    if (!to.is_alias_of(from)) to.copy_(from);
    return;
  }
  if (on_device(to) && arithmetic.summation == Summation::Reproducible) {
    // LibTorch's order of a sum depends on how many it takes.
    std::vector<std::int64_t> last(dimensions.size());
    std::iota(last.begin(), last.end(), to.dim() - std::ssize(last));
    const Tensor terms = from.movedim(dimensions, last).reshape({to.numel(), -1});
    to.copy_(row_sums_on_device(terms).view(to.sizes()));
    return;
  }
  Tensor sum = to;
  at::sum_out(sum, from, at::IntArrayRef(dimensions), true);
}

namespace {

/// Two inputs whose shapes broadcast.
class Broadcast : public Layer {
 public:
  Broadcast(std::array<Shape, 2> shapes, Shape shape) : shape_(std::move(shape)) {
    for (std::size_t k = 0; k < 2; ++k) shapes_[k] = with_dimensions(shapes[k], shape_.size());
  }

  std::int64_t output_features() const override { return values_of(shape_); }
  double forward_flops() const override { return static_cast<double>(output_features()); }

 protected:
  bool repeats(std::size_t k) const { return shapes_[k] != shape_; }
  Tensor input(Stacks stacks, std::size_t k) const { return shaped(stacks[k], shapes_[k]); }
  Tensor whole(const Tensor& stack) const { return shaped(stack, shape_); }

 private:
  std::array<Shape, 2> shapes_;  // of as many dimensions as the output
  Shape shape_;
};

/// a + b or a - b.
class Addition final : public Broadcast {
 public:
  Addition(std::array<Shape, 2> shapes, Shape shape, double sign)
      : Broadcast(std::move(shapes), std::move(shape)), sign_(sign) {}

  bool in_place() const override { return !repeats(0); }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    Tensor sum = whole(output);
    at::add_out(sum, input(inputs, 0), input(inputs, 1), sign_);
  }
  void backward(const Pass& pass, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    const Tensor dy = whole(output_gradient);
    if (input_gradients[1].defined()) {
      const Tensor db = input(input_gradients, 1);
      sum_to(dy, db, pass.arithmetic);
      if (sign_ < 0) db.neg_();
    }
    if (input_gradients[0].defined()) sum_to(dy, input(input_gradients, 0), pass.arithmetic);
  }

 private:
  double sign_;
};

class Multiplication final : public Broadcast {
 public:
  using Broadcast::Broadcast;

  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override {
    if (use == Use::Evaluation || (!repeats(0) && !repeats(1))) return {};
    return {.per_sample = {at::empty({clients, batch, output_features()}, options)}};
  }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    Tensor product = whole(output);
    at::mul_out(product, input(inputs, 0), input(inputs, 1));
  }
  void backward(const Pass& pass, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    for (std::size_t k = 0; k < 2; ++k) {
      if (!input_gradients[k].defined()) continue;
      const Tensor into = input(input_gradients, k);
      Tensor product = repeats(k) ? whole(pass.saved.per_sample[0]) : into;
      at::mul_out(product, whole(output_gradient), input(inputs, 1 - k));
      if (repeats(k)) sum_to(product, into, pass.arithmetic);
    }
  }
};

/// The shapes of two inputs and of what they make together.
struct Pair {
  std::array<Shape, 2> inputs;
  Shape shape;
};

Pair pair_of(const LineReader& line) {
  const std::vector<Shape>& inputs = line.inputs(2, 2);
  const std::size_t count = std::max(inputs[0].size(), inputs[1].size());
  Shape shape = with_dimensions(inputs[0], count);
  const Shape other = with_dimensions(inputs[1], count);
  for (std::size_t d = 0; d < count; ++d) shape[d] = std::max(shape[d], other[d]);
  line.check(broadcasts(inputs[0], shape) && broadcasts(inputs[1], shape),
             concat("its inputs have the shapes ", at::IntArrayRef(inputs[0]), " and ",
                    at::IntArrayRef(inputs[1]), ", which do not broadcast"));
  return {{inputs[0], inputs[1]}, shape};
}

}  // namespace

MadeLayer make_add_layer(const LineReader& line) {
  const Pair pair = pair_of(line);
  if (pair.inputs[0] == pair.inputs[1]) {
    return {std::make_unique<Sum>(values_of(pair.shape)), pair.shape};
  }
  return {std::make_unique<Addition>(pair.inputs, pair.shape, 1), pair.shape};
}

MadeLayer make_subtract_layer(const LineReader& line) {
  const Pair pair = pair_of(line);
  return {std::make_unique<Addition>(pair.inputs, pair.shape, -1), pair.shape};
}

MadeLayer make_multiply_layer(const LineReader& line) {
  const Pair pair = pair_of(line);
  return {std::make_unique<Multiplication>(pair.inputs, pair.shape), pair.shape};
}

}  // namespace fedhpc
