#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"

#include "models/dropout_mask.hpp"
#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

namespace fedhpc {

namespace {

/// Sets each number to 0 with probability p and divides the others by 1 - p, when training; in
/// evaluation it does nothing. A number of the mask serves `places` values that follow each other.
class Dropout final : public Layer {
 public:
  Dropout(double p, std::int64_t units, std::int64_t places, std::int64_t number)
      : p_(p), units_(units), places_(places), number_(number) {}

  std::int64_t output_features() const override { return units_ * places_; }
  bool in_place() const override { return true; }
  bool draws() const override { return true; }
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override {
    if (use == Use::Evaluation) return {};
    return {.per_sample = {at::empty({clients, batch, units_}, options.dtype(at::kByte))}};
  }

  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override {
    if (pass.use == Use::Training) {
      draw(pass);
      scale(pass, inputs[0], output);
    } else if (!output.is_alias_of(inputs[0])) {
      output.copy_(inputs[0]);
    }
  }

  void backward(const Pass& pass, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (input_gradients[0].defined()) scale(pass, output_gradient, input_gradients[0]);
  }

 private:
  void draw(const Pass& pass) const {
    const Tensor& mask = pass.saved.per_sample[0];
    const bool device = on_device(mask);
    const Tensor drawn = device ? at::empty(mask.sizes(), at::kByte) : mask;
    for (std::int64_t c = 0; c < mask.size(0); ++c) {
      draw_mask<std::uint8_t>(pass.draws.key(c, number_), p_, 1, samples_of<std::uint8_t>(drawn, c),
                              mask.size(1) * units_);
    }
    if (device) mask.copy_(to_device(drawn, mask.device()));
  }

  /// y = factor x where the mask is 1, else 0 x: infinity and NaN show.
  void scale(const Pass& pass, const Tensor& x, const Tensor& y) const {
    const double factor = p_ < 1 ? 1 / (1 - p_) : 0;
    const Tensor& mask = pass.saved.per_sample[0];
    if (on_device(y)) {
      Tensor values = shaped(y, {units_, places_});
      at::mul_out(values, shaped(x, {units_, places_}), mask.unsqueeze(3)).mul_(factor);
      return;
    }
    with_type(y.scalar_type(), [&]<typename T>() {
      const auto kept = static_cast<T>(factor);
      for (std::int64_t c = 0; c < y.size(0); ++c) {
        scale_values(samples_of<std::uint8_t>(mask, c), kept, samples_of<T>(x, c),
                     samples_of<T>(y, c), y.size(1) * units_);
      }
    });
  }

  template <typename T>
  void scale_values(const std::uint8_t* mask, T kept, const T* x, T* y, std::int64_t units) const {
    if (places_ == 1) {
      for (std::int64_t i = 0; i < units; ++i) y[i] = x[i] * (static_cast<T>(mask[i]) * kept);
      return;
    }
    for (std::int64_t u = 0; u < units; ++u) {
      const T factor = static_cast<T>(mask[u]) * kept;
      for (std::int64_t i = u * places_; i < (u + 1) * places_; ++i) y[i] = x[i] * factor;
    }
  }

  double p_;
  std::int64_t units_;
  std::int64_t places_;
  std::int64_t number_;
};

}  // namespace

MadeLayer make_dropout_layer(const LineReader& line) {
  const Shape& shape = line.input();
  line.check(line.has("p"), "the key 'p' is missing");
  const double p = line.number_or("p", 0);
  line.check(0 <= p && p <= 1, concat("'p' is ", p, "; allowed: numbers from 0 to 1"));
  const bool channels = line.flag_or("channels", false);
  line.check(!channels || !shape.empty(), "its input has no channels");
  if (p == 0) return {nullptr, shape};
  const std::int64_t units = channels ? shape.front() : values_of(shape);
  return {std::make_unique<Dropout>(p, units, values_of(shape) / units, line.number()), shape};
}

}  // namespace fedhpc
