#include "fedhpc/core/device.hpp"

#include "models/elementwise_functions.hpp"
#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

namespace fedhpc {

namespace {

template <typename Function>
class Elementwise final : public Layer {
 public:
  Elementwise(Function function, std::int64_t features)
      : function_(function), features_(features) {}

  std::int64_t output_features() const override { return features_; }
  bool in_place() const override { return Function::kReads != Reads::Input; }
  bool reads_output() const override { return Function::kReads == Reads::Output; }
  bool is_elementwise() const override { return true; }

  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    const Tensor& input = inputs[0];
    if (on_device(output)) return function_.value(input, output);
    with_type(output.scalar_type(), [&]<typename T>() {
      for (std::int64_t c = 0; c < output.size(0); ++c) {
        at::vec::map<T>([this](Vector<T> x) { return function_.value(x); },
                        samples_of<T>(output, c), samples_of<T>(input, c),
                        output.size(1) * features_);
      }
    });
  }

  void backward(const Pass&, Stacks inputs, const Tensor& output, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    const Tensor& input_gradient = input_gradients[0];
    if (!input_gradient.defined()) return;
    const Tensor& read = Function::kReads == Reads::Input    ? inputs[0]
                         : Function::kReads == Reads::Output ? output
                                                             : output_gradient;
    if (on_device(output)) return function_.gradient(output_gradient, read, input_gradient);
    with_type(output.scalar_type(), [&]<typename T>() {
      for (std::int64_t c = 0; c < output.size(0); ++c) {
        at::vec::map2<T>([this](Vector<T> dy, Vector<T> xy) { return function_.gradient(dy, xy); },
                         samples_of<T>(input_gradient, c), samples_of<T>(output_gradient, c),
                         samples_of<T>(read, c), output.size(1) * features_);
      }
    });
  }

 private:
  Function function_;
  std::int64_t features_;
};

template <typename Function>
MadeLayer made(const LineReader& line, Function function) {
  const Shape& shape = line.input();
  return {std::make_unique<Elementwise<Function>>(function, values_of(shape)), shape};
}

double at_least_0(const LineReader& line, const std::string& key, double otherwise) {
  const double number = line.number_or(key, otherwise);
  line.check(number >= 0, concat("'", key, "' is ", number, "; allowed: numbers from 0 on"));
  return number;
}

}  // namespace

MadeLayer make_silu_layer(const LineReader& line) { return made(line, Silu{}); }
MadeLayer make_tanh_layer(const LineReader& line) { return made(line, Tanh{}); }
MadeLayer make_sigmoid_layer(const LineReader& line) { return made(line, Sigmoid{}); }
MadeLayer make_hardswish_layer(const LineReader& line) { return made(line, Hardswish{}); }

MadeLayer make_gelu_layer(const LineReader& line) {
  return line.flag_or("tanh", false) ? made(line, TanhGelu{}) : made(line, Gelu{});
}

MadeLayer make_leaky_relu_layer(const LineReader& line) {
  return made(line, LeakyRelu{at_least_0(line, "slope", 0.01)});
}

MadeLayer make_elu_layer(const LineReader& line) {
  return made(line, Elu{at_least_0(line, "alpha", 1)});
}

MadeLayer make_softplus_layer(const LineReader& line) {
  const Softplus function{line.number_or("beta", 1), line.number_or("threshold", 20)};
  line.check(function.beta != 0, "'beta' is 0; allowed: other numbers");
  return made(line, function);
}

MadeLayer make_hardtanh_layer(const LineReader& line) {
  line.check(line.has("low") && line.has("high"), "it needs the keys 'low' and 'high'");
  const Hardtanh function{line.number_or("low", 0), line.number_or("high", 0)};
  line.check(function.low < function.high, concat("'low' is ", function.low, " and 'high' is ",
                                                  function.high, "; 'low' has to be smaller"));
  return made(line, function);
}

MadeLayer make_affine_layer(const LineReader& line) {
  return made(line, Affine{line.number_or("factor", 1), line.number_or("shift", 0)});
}

MadeLayer make_power_layer(const LineReader& line) {
  line.check(line.has("exponent"), "the key 'exponent' is missing");
  const Power function{line.number_or("exponent", 1)};
  line.check(function.exponent != 0, "'exponent' is 0; allowed: other numbers");
  return made(line, function);
}

}  // namespace fedhpc
