#include <ATen/ops/ones.h>

#include "fedhpc/math/products.hpp"

#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

// Layers without an input: the same for every sample.
namespace fedhpc {

namespace {

class Parameter final : public Layer {
 public:
  Parameter(ParameterNames names, Shape shape, Tag tags)
      : names_(std::move(names)), shape_(std::move(shape)), tags_(tags) {}

  std::int64_t output_features() const override { return values_of(shape_); }
  void declare(Layout& layout) override {
    column_ = layout.size();
    layout.add(names_.of(0, "weight"), shape_, 1, tags_, Initial::Given);
  }
  Saved make_saved(std::int64_t, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override {
    if (use == Use::Evaluation) return {};
    return {.shared = {at::ones({1, batch}, options)}};
  }
  void forward(const Pass& pass, Stacks, const Tensor& output) const override {
    output.copy_(pass.weights.narrow(1, column_, output.size(2)).unsqueeze(1));
  }
  /// The sum over the batch, as a product with ones.
  void backward(const Pass& pass, Stacks, const Tensor&, const Tensor& output_gradient, Stacks,
                const GradientSink& sink) const override {
    if (!sink.columns.hold(tags_)) return;
    const std::int64_t clients = output_gradient.size(0);
    const Tensor ones = pass.saved.shared[0].expand({clients, -1});
    batched_product(output_gradient.scalar_type(), clients, sink.scale,
                    matrices_in(ones, 0, 1, output_gradient.size(1)), Transpose::No,
                    matrices_of(output_gradient), Transpose::No, sink.keep,
                    matrices_in(sink.rows, column_, 1, output_gradient.size(2)),
                    {.summation = pass.arithmetic.summation});
  }

 private:
  ParameterNames names_;
  Shape shape_;
  Tag tags_;
  std::int64_t column_ = 0;
};

class Constant final : public Layer {
 public:
  explicit Constant(Tensor values) : values_(std::move(values)) {}

  std::int64_t output_features() const override { return values_.numel(); }
  Saved make_saved(std::int64_t, std::int64_t, const at::TensorOptions& options,
                   Use) const override {
    return {.shared = {values_.to(options)}};
  }
  void forward(const Pass& pass, Stacks, const Tensor& output) const override {
    output.copy_(pass.saved.shared[0]);
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor&, Stacks,
                const GradientSink&) const override {}

 private:
  Tensor values_;  // [width]
};

}  // namespace

MadeLayer make_parameter_layer(const LineReader& line) {
  line.inputs(0, 0);
  const Shape shape = line.shape("shape");
  const ParameterNames names = line.parameters(1, 1);
  const std::string name = names.of(0, "weight");
  Tag tags = line.tags() | (line.flag_or("norm", false) ? kScaleTags : kTableTags);
  // What a module adds by itself is a bias, as that of a linear layer.
  if (shape.size() == 1 && is_bias(name.substr(name.rfind('.') + 1))) tags = tags | Tag::Bias;
  return {std::make_unique<Parameter>(names, shape, tags), shape};
}

MadeLayer make_constant_layer(const LineReader& line) {
  line.inputs(0, 0);
  const Shape shape = line.shape("shape");
  const Tensor& numbers = line.constant();
  line.check(numbers.numel() == values_of(shape),
             concat("its constant has ", numbers.numel(), " numbers, the shape ",
                    at::IntArrayRef(shape), " has ", values_of(shape)));
  return {std::make_unique<Constant>(numbers.flatten().contiguous()), shape};
}

}  // namespace fedhpc
