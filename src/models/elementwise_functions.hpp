#pragma once

#include <numbers>

#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include "fedhpc/core/tensor.hpp"

#include "models/vectors.hpp"

// Functions of one number and their gradients, for vectors of the host and for tensors of a device.
namespace fedhpc {

/// What a gradient is computed from. A layer that does not read its input works in place.
enum class Reads { Nothing, Input, Output };

struct Silu {
  static constexpr Reads kReads = Reads::Input;
  template <typename V>
  V value(V x) const {
    return x / (all_of<V>(1) + x.neg().exp());
  }
  template <typename V>
  V gradient(V dy, V x) const {
    const V one = all_of<V>(1);
    const V s = one / (one + x.neg().exp());
    return dy * s * (one + x * (one - s));
  }
  void value(const Tensor& x, Tensor y) const { at::silu_out(y, x); }
  void gradient(const Tensor& dy, const Tensor& x, Tensor dx) const {
    at::silu_backward_out(dx, dy, x);
  }
};

struct Tanh {
  static constexpr Reads kReads = Reads::Output;
  template <typename V>
  V value(V x) const {
    return x.tanh();
  }
  template <typename V>
  V gradient(V dy, V y) const {
    return dy * (all_of<V>(1) - y * y);
  }
  void value(const Tensor& x, Tensor y) const { at::tanh_out(y, x); }
  void gradient(const Tensor& dy, const Tensor& y, Tensor dx) const {
    at::tanh_backward_out(dx, dy, y);
  }
};

struct Sigmoid {
  static constexpr Reads kReads = Reads::Output;
  template <typename V>
  V value(V x) const {
    const V one = all_of<V>(1);
    return one / (one + x.neg().exp());
  }
  template <typename V>
  V gradient(V dy, V y) const {
    return dy * (all_of<V>(1) - y) * y;
  }
  void value(const Tensor& x, Tensor y) const { at::sigmoid_out(y, x); }
  void gradient(const Tensor& dy, const Tensor& y, Tensor dx) const {
    at::sigmoid_backward_out(dx, dy, y);
  }
};

/// x min(max(x + 3, 0), 6) / 6
struct Hardswish {
  static constexpr Reads kReads = Reads::Input;
  template <typename V>
  V value(V x) const {
    const V three = all_of<V>(3);
    return x * at::vec::clamp(x + three, all_of<V>(0), all_of<V>(6)) / all_of<V>(6);
  }
  template <typename V>
  V gradient(V dy, V x) const {
    const V three = all_of<V>(3);
    const V between = dy * (x / three + all_of<V>(0.5));
    return V::blendv(V::blendv(between, dy, x >= three), all_of<V>(0), x <= three.neg());
  }
  // LibTorch's kernels for cards take 1/6 and 1/3 of float32 for float64 as well.
  void value(const Tensor& x, Tensor y) const {
    if (x.scalar_type() != at::kDouble) {
      at::hardswish_out(y, x);
      return;
    }
    y.copy_(x).add_(3).clamp_(0, 6).mul_(x).div_(6);
  }
  void gradient(const Tensor& dy, const Tensor& x, Tensor dx) const {
    if (x.scalar_type() != at::kDouble) {
      at::hardswish_backward_out(dx, dy, x);
      return;
    }
    const Tensor slope = x.div(3).add_(0.5);
    at::mul_out(dx, dy, slope.masked_fill_(x.ge(3), 1).masked_fill_(x.le(-3), 0));
  }
};

/// x P(Z <= x) of a standard normal Z.
struct Gelu {
  static constexpr Reads kReads = Reads::Input;
  template <typename V>
  static V distribution(V x) {
    const V half = all_of<V>(0.5);
    return half + half * (x * all_of<V>(std::numbers::sqrt2 / 2)).erf();
  }
  template <typename V>
  V value(V x) const {
    return x * distribution(x);
  }
  template <typename V>
  V gradient(V dy, V x) const {
    const double factor = std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
    const V density = (x * x * all_of<V>(-0.5)).exp() * all_of<V>(factor);
    return dy * (distribution(x) + x * density);
  }
  void value(const Tensor& x, Tensor y) const { at::gelu_out(y, x); }
  void gradient(const Tensor& dy, const Tensor& x, Tensor dx) const {
    at::gelu_backward_out(dx, dy, x);
  }
};

/// 0.5 x (1 + tanh(a (x + b x^3))) with a = sqrt(2 / pi), b = 0.044715
struct TanhGelu {
  static constexpr Reads kReads = Reads::Input;
  static constexpr double kA = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static constexpr double kB = 0.044715;
  template <typename V>
  static V tanh_of(V x) {
    return (all_of<V>(kA) * (x + all_of<V>(kB) * x * x * x)).tanh();
  }
  template <typename V>
  V value(V x) const {
    return all_of<V>(0.5) * x * (all_of<V>(1) + tanh_of(x));
  }
  template <typename V>
  V gradient(V dy, V x) const {
    const V one = all_of<V>(1);
    const V t = tanh_of(x);
    const V slope = (one - t * t) * all_of<V>(kA) * (one + all_of<V>(3 * kB) * x * x);
    return dy * all_of<V>(0.5) * (one + t + x * slope);
  }
  void value(const Tensor& x, Tensor y) const { at::gelu_out(y, x, "tanh"); }
  void gradient(const Tensor& dy, const Tensor& x, Tensor dx) const {
    at::gelu_backward_out(dx, dy, x, "tanh");
  }
};

/// The sign of y is that of x.
struct LeakyRelu {
  static constexpr Reads kReads = Reads::Output;
  double slope;  // at least 0
  template <typename V>
  V value(V x) const {
    return V::blendv(x * all_of<V>(slope), x, x > all_of<V>(0));
  }
  template <typename V>
  V gradient(V dy, V y) const {
    return V::blendv(dy * all_of<V>(slope), dy, y > all_of<V>(0));
  }
  void value(const Tensor& x, Tensor y) const { at::leaky_relu_out(y, x, slope); }
  void gradient(const Tensor& dy, const Tensor& y, Tensor dx) const {
    at::leaky_relu_backward_out(dx, dy, y, slope, true);
  }
};

/// x, and alpha (e^x - 1) below 0, where the derivative is y + alpha.
struct Elu {
  static constexpr Reads kReads = Reads::Output;
  double alpha;  // at least 0
  template <typename V>
  V value(V x) const {
    return V::blendv(x.expm1() * all_of<V>(alpha), x, x > all_of<V>(0));
  }
  template <typename V>
  V gradient(V dy, V y) const {
    return V::blendv(dy * (y + all_of<V>(alpha)), dy, y > all_of<V>(0));
  }
  void value(const Tensor& x, Tensor y) const { at::elu_out(y, x, alpha); }
  void gradient(const Tensor& dy, const Tensor& y, Tensor dx) const {
    at::elu_backward_out(dx, dy, alpha, 1, 1, true, y);
  }
};

/// ln(1 + e^(beta x)) / beta, and x where beta x is above the threshold.
struct Softplus {
  static constexpr Reads kReads = Reads::Input;
  double beta;
  double threshold;
  template <typename V>
  V value(V x) const {
    const V scaled = x * all_of<V>(beta);
    const V soft = scaled.exp().log1p() / all_of<V>(beta);
    return V::blendv(soft, x, scaled > all_of<V>(threshold));
  }
  template <typename V>
  V gradient(V dy, V x) const {
    const V scaled = x * all_of<V>(beta);
    const V soft = dy / (all_of<V>(1) + scaled.neg().exp());
    return V::blendv(soft, dy, scaled > all_of<V>(threshold));
  }
  void value(const Tensor& x, Tensor y) const { at::softplus_out(y, x, beta, threshold); }
  void gradient(const Tensor& dy, const Tensor& x, Tensor dx) const {
    at::softplus_backward_out(dx, dy, x, beta, threshold);
  }
};

/// y is a bound exactly where x is not between them.
struct Hardtanh {
  static constexpr Reads kReads = Reads::Output;
  double low;
  double high;
  template <typename V>
  V value(V x) const {
    return at::vec::clamp(x, all_of<V>(low), all_of<V>(high));
  }
  template <typename V>
  V gradient(V dy, V y) const {
    const V zero = all_of<V>(0);
    return V::blendv(V::blendv(dy, zero, y <= all_of<V>(low)), zero, y >= all_of<V>(high));
  }
  void value(const Tensor& x, Tensor y) const { at::hardtanh_out(y, x, low, high); }
  void gradient(const Tensor& dy, const Tensor& y, Tensor dx) const {
    at::hardtanh_backward_out(dx, dy, y, low, high);
  }
};

struct Affine {
  static constexpr Reads kReads = Reads::Nothing;
  double factor;
  double shift;
  template <typename V>
  V value(V x) const {
    return x * all_of<V>(factor) + all_of<V>(shift);
  }
  template <typename V>
  V gradient(V dy, V) const {
    return dy * all_of<V>(factor);
  }
  void value(const Tensor& x, Tensor y) const { started(x, y).mul_(factor).add_(shift); }
  void gradient(const Tensor& dy, const Tensor&, Tensor dx) const { started(dy, dx).mul_(factor); }
  /// y = x
  static Tensor& started(const Tensor& x, Tensor& y) { return y.is_alias_of(x) ? y : y.copy_(x); }
};

struct Power {
  static constexpr Reads kReads = Reads::Input;
  double exponent;  // not 0
  /// A power takes long where it is none of these.
  template <typename V>
  static V raised(V x, double by) {
    const V one = all_of<V>(1);
    if (by == -2) return one / (x * x);
    if (by == -1.5) return one / (x * x.sqrt());
    if (by == -1) return one / x;
    if (by == -0.5) return one / x.sqrt();
    if (by == 0.5) return x.sqrt();
    if (by == 1) return x;
    if (by == 2) return x * x;
    if (by == 3) return x * x * x;
    return x.pow(all_of<V>(by));
  }
  template <typename V>
  V value(V x) const {
    return raised(x, exponent);
  }
  template <typename V>
  V gradient(V dy, V x) const {
    if (exponent == 1) return dy;
    return dy * all_of<V>(exponent) * raised(x, exponent - 1);
  }
  void value(const Tensor& x, Tensor y) const { at::pow_out(y, x, exponent); }
  void gradient(const Tensor& dy, const Tensor& x, Tensor dx) const {
    at::pow_out(dx, x, exponent - 1).mul_(dy).mul_(exponent);
  }
};

}  // namespace fedhpc
