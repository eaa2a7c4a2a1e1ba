#include <algorithm>

#include <ATen/ops/empty.h>

#include "models/broadcast.hpp"
#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

// Layers that copy values to other places.
namespace fedhpc {

namespace {

class Concat final : public Layer {
 public:
  Concat(std::vector<Shape> shapes, std::size_t dimension, Shape shape)
      : shapes_(std::move(shapes)), dimension_(dimension), shape_(std::move(shape)) {}

  std::int64_t output_features() const override { return values_of(shape_); }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    each_part(output, [&](std::size_t k, const Tensor& part) {
      part.copy_(shaped(inputs[k], shapes_[k]));
    });
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    each_part(output_gradient, [&](std::size_t k, const Tensor& part) {
      if (input_gradients[k].defined()) shaped(input_gradients[k], shapes_[k]).copy_(part);
    });
  }

 private:
  template <typename Work>
  void each_part(const Tensor& stack, Work&& work) const {
    const Tensor whole = shaped(stack, shape_);
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < shapes_.size(); ++k) {
      const std::int64_t length = shapes_[k][dimension_];
      work(k, whole.narrow(in_stack(dimension_), begin, length));
      begin += length;
    }
  }

  std::vector<Shape> shapes_;
  std::size_t dimension_;
  Shape shape_;
};

class Slice final : public Layer {
 public:
  struct Places {
    std::size_t dimension;
    std::int64_t start;
    std::int64_t end;
    std::int64_t step;
  };
  Slice(Shape in, Places places, Shape shape)
      : in_(std::move(in)), places_(places), shape_(std::move(shape)) {}

  std::int64_t output_features() const override { return values_of(shape_); }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    shaped(output, shape_).copy_(slice_of(inputs[0]));
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (!input_gradients[0].defined()) return;
    input_gradients[0].zero_();
    slice_of(input_gradients[0]).copy_(shaped(output_gradient, shape_));
  }

 private:
  Tensor slice_of(const Tensor& stack) const {
    return shaped(stack, in_)
        .slice(in_stack(places_.dimension), places_.start, places_.end, places_.step);
  }

  Shape in_;
  Places places_;
  Shape shape_;
};

class Permute final : public Layer {
 public:
  Permute(Shape in, const std::vector<std::size_t>& dimensions, Shape shape)
      : in_(std::move(in)), shape_(std::move(shape)) {
    for (const std::size_t d : dimensions) order_.push_back(in_stack(d));
  }

  std::int64_t output_features() const override { return values_of(shape_); }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    shaped(output, shape_).copy_(shaped(inputs[0], in_).permute(order_));
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (!input_gradients[0].defined()) return;
    shaped(input_gradients[0], in_).permute(order_).copy_(shaped(output_gradient, shape_));
  }

 private:
  Shape in_;
  std::vector<std::int64_t> order_{0, 1};  // of the dimensions of a stack
  Shape shape_;
};

class Expand final : public Layer {
 public:
  Expand(const Shape& in, Shape shape)
      : in_(with_dimensions(in, shape.size())), shape_(std::move(shape)) {}

  std::int64_t output_features() const override { return values_of(shape_); }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    shaped(output, shape_).copy_(shaped(inputs[0], in_));
  }
  void backward(const Pass& pass, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (!input_gradients[0].defined()) return;
    sum_to(shaped(output_gradient, shape_), shaped(input_gradients[0], in_), pass.arithmetic);
  }

 private:
  Shape in_;
  Shape shape_;
};

/// Whether the values lie in the same order afterwards.
bool keeps_order(const std::vector<std::size_t>& dimensions, const Shape& shape) {
  std::vector<std::size_t> moving;
  for (const std::size_t d : dimensions) {
    if (shape[d] > 1) moving.push_back(d);
  }
  return std::is_sorted(moving.begin(), moving.end());
}

}  // namespace

MadeLayer make_concat_layer(const LineReader& line) {
  const std::vector<Shape>& inputs = line.inputs(2, LineReader::kMost);
  const std::size_t dimension = line.dimension("dim", inputs[0]);
  Shape shape = inputs[0];
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    Shape alike = inputs[k];
    if (alike.size() == shape.size()) alike[dimension] = shape[dimension];
    line.check(alike == shape, concat("its inputs have the shapes ", at::IntArrayRef(inputs[0]),
                                      " and ", at::IntArrayRef(inputs[k]),
                                      ", which differ in another dimension than 'dim'"));
    shape[dimension] += inputs[k][dimension];
  }
  return {std::make_unique<Concat>(inputs, dimension, shape), shape};
}

MadeLayer make_slice_layer(const LineReader& line) {
  const Shape& in = line.input();
  const std::size_t dimension = line.dimension("dim", in);
  const std::int64_t length = in[dimension];
  const std::int64_t start = line.integer("start", 0, length - 1);
  const std::int64_t end = line.integer("end", start + 1, length);
  const std::int64_t step = line.integer_or("step", 1, 1);
  Shape shape = in;
  shape[dimension] = (end - start + step - 1) / step;
  if (shape == in) return {nullptr, shape};
  return {std::make_unique<Slice>(in, Slice::Places{dimension, start, end, step}, shape), shape};
}

MadeLayer make_permute_layer(const LineReader& line) {
  const Shape& in = line.input();
  const std::vector<std::size_t> dimensions = line.dimensions("dims", in);
  line.check(dimensions.size() == in.size(),
             concat("'dims' has ", dimensions.size(), " numbers, it needs ", in.size()));
  Shape shape;
  for (const std::size_t d : dimensions) shape.push_back(in[d]);
  if (keeps_order(dimensions, in)) return {nullptr, shape};
  return {std::make_unique<Permute>(in, dimensions, shape), shape};
}

MadeLayer make_expand_layer(const LineReader& line) {
  const Shape& in = line.input();
  const Shape shape = line.shape("shape");
  line.check(broadcasts(in, shape), concat("a value of shape ", at::IntArrayRef(in),
                                           " does not expand to ", at::IntArrayRef(shape)));
  if (values_of(shape) == values_of(in)) return {nullptr, shape};
  return {std::make_unique<Expand>(in, shape), shape};
}

}  // namespace fedhpc
