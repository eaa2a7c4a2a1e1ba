#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/softmax_lines.hpp"

#include "models/layer_makers.hpp"
#include "models/stacks.hpp"
#include "models/vectors.hpp"

namespace fedhpc {

namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // a logit without a share

/// `length` numbers, each `stride` after the last.
struct Line {
  std::int64_t length;
  std::int64_t stride;
};

/// Joins term(place) over all places of lines that lie side by side in a vector.
template <typename T, typename Term, typename Join>
Vector<T> join_all(const Line& line, Term&& term, Join&& join) {
  Vector<T> all = term(0);
  for (std::int64_t i = 1; i < line.length; ++i) all = join(all, term(i * line.stride));
  return all;
}

/// Softmax along lines, or its logarithm.
template <typename T>
struct Lines {
  using V = Vector<T>;
  Line line;
  bool logarithm;

  /// Lines that lie side by side, `count` of them.
  void value_beside(const T* x, T* y, std::int64_t count) const {
    const auto number = [&](std::int64_t i) { return V::loadu(x + i, count); };
    const V most = join_all<T>(line, number, [](V a, V b) { return at::vec::maximum(a, b); });
    const V sum = join_all<T>(
        line, [&](std::int64_t i) { return (number(i) - most).exp(); },
        [](V a, V b) { return a + b; });
    const V log_sum = sum.log();
    for (std::int64_t n = 0; n < line.length; ++n) {
      const V centred = number(n * line.stride) - most;
      const V result = logarithm ? centred - log_sum : centred.exp() / sum;
      result.store(y + n * line.stride, static_cast<int>(count));
    }
  }
  void gradient_beside(const T* y, const T* dy, T* dx, std::int64_t count) const {
    const auto value = [&](std::int64_t i) { return V::loadu(y + i, count); };
    const auto gradient = [&](std::int64_t i) { return V::loadu(dy + i, count); };
    const V sum = join_all<T>(
        line, [&](std::int64_t i) { return logarithm ? gradient(i) : gradient(i) * value(i); },
        [](V a, V b) { return a + b; });
    for (std::int64_t n = 0; n < line.length; ++n) {
      const std::int64_t i = n * line.stride;
      const V result =
          logarithm ? gradient(i) - value(i).exp() * sum : value(i) * (gradient(i) - sum);
      result.store(dx + i, static_cast<int>(count));
    }
  }

  /// One line whose numbers are neighbours.
  void value(const T* x, T* y) const {
    const V most(
        at::vec::reduce_all<T>([](V a, V b) { return at::vec::maximum(a, b); }, x, line.length));
    const auto plus = [](V a, V b) { return a + b; };
    if (logarithm) {
      const T sum =
          at::vec::map_reduce_all<T>([&](V a) { return (a - most).exp(); }, plus, x, line.length);
      const V log_sum(std::log(sum));
      at::vec::map<T>([&](V a) { return a - most - log_sum; }, y, x, line.length);
      return;
    }
    at::vec::map<T>([&](V a) { return (a - most).exp(); }, y, x, line.length);
    const V sum(at::vec::reduce_all<T>(plus, y, line.length));
    at::vec::map<T>([&](V a) { return a / sum; }, y, y, line.length);
  }
  void gradient(const T* y, const T* dy, T* dx) const {
    const auto plus = [](V a, V b) { return a + b; };
    if (logarithm) {
      const V sum(at::vec::reduce_all<T>(plus, dy, line.length));
      at::vec::map2<T>([&](V g, V v) { return g - v.exp() * sum; }, dx, dy, y, line.length);
      return;
    }
    const V sum(
        at::vec::map2_reduce_all<T>([](V g, V v) { return g * v; }, plus, dy, y, line.length));
    at::vec::map2<T>([&](V g, V v) { return v * (g - sum); }, dx, dy, y, line.length);
  }
};

class Softmax final : public Layer {
 public:
  Softmax(Shape shape, std::size_t dimension, bool logarithm)
      : shape_(std::move(shape)), dimension_(dimension), logarithm_(logarithm) {
    for (std::size_t d = dimension + 1; d < shape_.size(); ++d) beside_ *= shape_[d];
  }

  std::int64_t output_features() const override { return values_of(shape_); }
  bool in_place() const override { return true; }
  bool reads_output() const override { return true; }

  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    const Tensor& input = inputs[0];
    if (on_device(output)) {
      const std::int64_t d = in_stack(dimension_);
      const Tensor x = begin_alike(shaped(input, shape_), d, kNothing);
      const Tensor y = logarithm_ ? at::_log_softmax(x, d, false) : at::_softmax(x, d, false);
      shaped(output, shape_).copy_(y.narrow(d, 0, shape_[dimension_]));
      return;
    }
    each_line(output, [&]<typename T>(const Lines<T>& lines, std::int64_t c, std::int64_t i,
                                      std::int64_t count) {
      const T* x = samples_of<T>(input, c) + i;
      T* y = samples_of<T>(output, c) + i;
      beside_ == 1 ? lines.value(x, y) : lines.value_beside(x, y, count);
    });
  }

  void backward(const Pass&, Stacks, const Tensor& output, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    const Tensor& input_gradient = input_gradients[0];
    if (!input_gradient.defined()) return;
    if (on_device(output)) {
      const std::int64_t d = in_stack(dimension_);
      const Tensor y = begin_alike(shaped(output, shape_), d, logarithm_ ? kNothing : 0);
      const Tensor dy = begin_alike(shaped(output_gradient, shape_), d, 0);
      const Tensor dx = logarithm_ ? at::_log_softmax_backward_data(dy, y, d, y.scalar_type())
                                   : at::_softmax_backward_data(dy, y, d, y.scalar_type());
      shaped(input_gradient, shape_).copy_(dx.narrow(d, 0, shape_[dimension_]));
      return;
    }
    each_line(output, [&]<typename T>(const Lines<T>& lines, std::int64_t c, std::int64_t i,
                                      std::int64_t count) {
      const T* y = samples_of<T>(output, c) + i;
      const T* dy = samples_of<T>(output_gradient, c) + i;
      T* dx = samples_of<T>(input_gradient, c) + i;
      beside_ == 1 ? lines.gradient(y, dy, dx) : lines.gradient_beside(y, dy, dx, count);
    });
  }

 private:
  /// Calls work(lines, client, place of the first number, lines side by side).
  template <typename Work>
  void each_line(const Tensor& stack, Work&& work) const {
    with_type(stack.scalar_type(), [&]<typename T>() {
      const Lines<T> lines{{shape_[dimension_], beside_}, logarithm_};
      const std::int64_t block = lines.line.length * beside_;
      const std::int64_t values = stack.size(1) * output_features();
      for (std::int64_t c = 0; c < stack.size(0); ++c) {
        for (std::int64_t begin = 0; begin < values; begin += block) {
          for (std::int64_t j = 0; j < beside_; j += Vector<T>::size()) {
            work(lines, c, begin + j, std::min<std::int64_t>(Vector<T>::size(), beside_ - j));
          }
        }
      }
    });
  }

  Shape shape_;
  std::size_t dimension_;
  bool logarithm_;
  std::int64_t beside_ = 1;  // lines side by side
};

MadeLayer softmax_of(const LineReader& line, bool logarithm) {
  const Shape& shape = line.input();
  return {std::make_unique<Softmax>(shape, line.dimension("dim", shape), logarithm), shape};
}

}  // namespace

MadeLayer make_softmax_layer(const LineReader& line) { return softmax_of(line, false); }
MadeLayer make_log_softmax_layer(const LineReader& line) { return softmax_of(line, true); }

}  // namespace fedhpc
