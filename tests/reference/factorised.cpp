#include "reference/factorised.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/kron.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

namespace fedhpc::reference {

namespace {

/// Sizes of a layer's matrix.
struct MatrixView {
  std::int64_t o;
  std::int64_t i;
};

bool is_convolution(const Field& weight) { return weight.shape.size() == 4; }

MatrixView view_of(const Field& weight) {
  const std::vector<std::int64_t>& s = weight.shape;
  if (!is_convolution(weight)) return {s[0], s[1]};
  return {s[0] * s[2], s[1] * s[3]};
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.ends_with(end);
}

std::int64_t at_least_one(double value) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(value));
}

/// The least z with blocks of z^2 x z^2 that hold all of the matrix.
std::int64_t block_side(std::int64_t numbers, std::int64_t blocks) {
  std::int64_t z = 1;
  while (blocks * z * z * z * z < numbers) ++z;
  return z;
}

std::int64_t product_of(const std::vector<std::int64_t>& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::int64_t hadamard_rank(const Field& weight, double ratio, bool full_rank) {
  const auto out = static_cast<double>(weight.shape[0]);
  const auto in = static_cast<double>(weight.shape[1]);
  double rank = ratio * out * in / (2 * (out + in));
  if (is_convolution(weight)) {
    // The positive root of 2 (r^2 K + r (out + in)) = ratio out in K.
    const auto k = static_cast<double>(weight.shape[2] * weight.shape[3]);
    const double half = (out + in) / (2 * k);
    const double target = ratio * out * in * k;
    rank = std::sqrt(half * half + target / (2 * k)) - half;
  }
  if (!full_rank) return at_least_one(std::floor(rank));
  return at_least_one(
      std::max({std::ceil(std::sqrt(out)), std::ceil(std::sqrt(in)), std::ceil(rank)}));
}

}  // namespace

std::int64_t size_for(const FactorisationSettings& settings, const Field& weight, double ratio) {
  if (settings.name == "hadamard") return hadamard_rank(weight, ratio, settings.full_rank);
  const MatrixView view = view_of(weight);
  const auto o = static_cast<double>(view.o);
  const auto i = static_cast<double>(view.i);
  if (settings.name == "low_rank_f") return at_least_one(std::ceil(ratio * o));
  if (settings.name == "ffa_lora") return at_least_one(std::ceil(ratio * i));
  if (settings.name.starts_with("low_rank") || settings.name == "lora") {
    return at_least_one(std::ceil(ratio * o * i / (o + i)));
  }
  const double factors = settings.name == "kronecker_f" ? 1 : 2;  // trained ones of a block
  if (settings.grid) {
    const std::int64_t k = at_least_one(std::ceil(ratio * std::sqrt(o * i) / factors));
    return k * k;
  }
  return at_least_one(std::ceil(ratio * ratio * o * i / (factors * factors)));
}

FactorisedLayer::FactorisedLayer(const FactorisationSettings& settings, std::size_t place,
                                 const Field& weight, std::int64_t size)
    : settings_(settings), place_(place), weight_(weight), size_(size) {
  const std::vector<std::int64_t>& s = weight.shape;
  if (settings.name == "hadamard") {
    for (int half = 0; half < 2; ++half) {
      if (is_convolution(weight)) shapes_.push_back({size, size, s[2], s[3]});
      shapes_.push_back({s[0], size});
      shapes_.push_back({s[1], size});
    }
    return;
  }
  if (settings.name == "cp") {
    for (auto sizes = s.rbegin(); sizes != s.rend(); ++sizes) shapes_.push_back({*sizes, size});
    return;
  }
  const MatrixView view = view_of(weight);
  std::vector<std::int64_t> u{view.o, size};
  std::vector<std::int64_t> v{view.i, size};
  if (is_kronecker()) {
    const std::int64_t z = block_side(weight.size, size);
    u = v = {size, z, z};
  }
  shapes_ = {u, v};                                           // U~ and V of _f
  if (is_lora()) shapes_ = {{size, view.i}, {view.o, size}};  // A, B
  if (ends_with(settings.name, "_f") || settings.name == "ffa_lora") constants_ = 1;
  if (ends_with(settings.name, "_aad")) {
    constants_ = 2;
    shapes_ = {u, v, u, v};
  }
}

bool FactorisedLayer::is_kronecker() const { return settings_.name.starts_with("kronecker"); }

bool FactorisedLayer::is_lora() const { return ends_with(settings_.name, "lora"); }

std::string FactorisedLayer::name() const {
  return weight_.name.substr(0, weight_.name.rfind('.'));
}

std::int64_t FactorisedLayer::factors() const {
  return static_cast<std::int64_t>(shapes_.size() - constants_);
}

std::int64_t FactorisedLayer::factor_size() const {
  std::int64_t size = 0;
  for (std::size_t f = constants_; f < shapes_.size(); ++f) size += product_of(shapes_[f]);
  return size;
}

Tensor FactorisedLayer::expand(const Parameters& constants, const Parameters& factors) const {
  if (settings_.name == "hadamard") return hadamard(factors);
  if (settings_.name == "cp") {
    return at::einsum(is_convolution(weight_) ? "wr,hr,ir,or->oihw" : "ir,or->oi", factors);
  }
  if (constants.empty()) return kernel(product(factors[0], factors[1]));
  if (constants.size() == 1) return kernel(product(constants[0], factors[0]));
  return kernel(product(factors[0], constants[1]).add(product(constants[0], factors[1])));
}

Tensor FactorisedLayer::product(const Tensor& u, const Tensor& v) const {
  if (is_lora()) {
    const double scale = settings_.alpha == 0 ? 1 : settings_.alpha / static_cast<double>(size_);
    return at::matmul(v, u).mul(scale);
  }
  if (!is_kronecker()) return at::matmul(u, v.t());
  const MatrixView view = view_of(weight_);
  std::int64_t side = 1;  // blocks next to each other
  while (settings_.grid && side * side < size_) ++side;
  std::vector<Tensor> rows;
  for (std::int64_t first = 0; first < size_; first += side) {
    std::vector<Tensor> blocks;
    for (std::int64_t b = first; b < first + side; ++b) blocks.push_back(at::kron(u[b], v[b]));
    rows.push_back(at::cat(blocks, 1));
  }
  return at::cat(rows).reshape({-1}).narrow(0, 0, weight_.size).view({view.o, view.i});
}

Tensor FactorisedLayer::kernel(const Tensor& matrix) const {
  const std::vector<std::int64_t>& s = weight_.shape;
  if (!is_convolution(weight_) || !settings_.permuted) return matrix.reshape(s);
  return matrix.reshape({s[0], s[2], s[1], s[3]}).permute({0, 2, 1, 3});
}

Tensor FactorisedLayer::matrix(const Tensor& weights) const {
  if (settings_.name == "hadamard") return weights.flatten(1);
  const MatrixView view = view_of(weight_);
  if (!is_convolution(weight_) || !settings_.permuted) return weights.reshape({view.o, view.i});
  return weights.permute({0, 2, 1, 3}).reshape({view.o, view.i});
}

Tensor FactorisedLayer::hadamard(const Parameters& factors) const {
  if (!is_convolution(weight_)) {
    return at::matmul(factors[0], factors[1].t()).mul(at::matmul(factors[2], factors[3].t()));
  }
  const auto half = [&](std::size_t first) {
    return at::einsum("pqab,op,iq->oiab", {factors[first], factors[first + 1], factors[first + 2]});
  };
  return half(0).mul(half(3));
}

Parameters FactorisedLayer::fit(const Tensor& weights) const {
  const auto [u, s, vt] = at::linalg_svd(matrix(weights), /*full_matrices=*/false);
  Parameters factors;
  const std::int64_t kept = std::min(size_, s.size(0));
  for (const Tensor& vectors : {u, Tensor(vt.t())}) {
    const Tensor factor = at::zeros({vectors.size(0), size_}, weights.options());
    factor.narrow(1, 0, kept).copy_(vectors.narrow(1, 0, kept).mul(s.narrow(0, 0, kept).sqrt()));
    factors.push_back(factor);
  }
  return factors;
}

double FactorisedLayer::normal_deviation(std::size_t f) const {
  if (settings_.like_layers) {
    const std::vector<std::int64_t>& shape = shapes_[f];
    const std::int64_t fan_in = shape.size() == 4 ? shape[1] * shape[2] * shape[3] : shape[0];
    return std::sqrt(2.0 / static_cast<double>(fan_in));
  }
  const double variance = 2.0 / static_cast<double>(weight_.fan_in);
  const auto r = static_cast<double>(size_);
  if (settings_.name == "low_rank" || settings_.name == "cp") {
    return std::pow(variance / r, 0.5 / static_cast<double>(shapes_.size()));
  }
  if (!is_convolution(weight_)) return std::pow(variance / (r * r), 1.0 / 8);
  return std::pow(variance / (r * r * r * r), 1.0 / 12);  // (r^2 sigma^6)^2
}

Tensor uniform_factor(std::uint64_t seed, const FactorisedLayer& layer, std::size_t f,
                      std::int64_t round, double range) {
  Draws draws({.seed = seed,
               .purpose = Purpose::Factors,
               .pass = f,
               .client = layer.place(),
               .round = static_cast<std::uint64_t>(round)});
  const Tensor factor = at::empty(layer.shapes()[f], at::kDouble);
  double* const entry = factor.data_ptr<double>();
  for (std::int64_t j = 0; j < factor.numel(); ++j) entry[j] = range * (2 * draws.uniform() - 1);
  return factor;
}

DrawnFactors uniform_factors(std::uint64_t seed, const FactorisedLayer& layer, std::int64_t round,
                             double range) {
  DrawnFactors drawn;
  for (std::size_t f = 0; f < layer.shapes().size(); ++f) {
    Parameters& kind = f < layer.constants() ? drawn.constants : drawn.factors;
    kind.push_back(uniform_factor(seed, layer, f, round, range));
  }
  return drawn;
}

double effective_rank(const Tensor& matrix) {
  const Tensor s = at::linalg_svdvals(matrix);
  const double sum = s.sum().item<double>();
  if (sum == 0) return 0;
  double entropy = 0;
  for (std::int64_t j = 0; j < s.size(0); ++j) {
    const double q = s[j].item<double>() / sum;
    if (q > 0) entropy -= q * std::log(q);
  }
  return std::exp(entropy);
}

}  // namespace fedhpc::reference
