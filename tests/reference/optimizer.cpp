#include "reference/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

std::vector<Tensor> OptimizerSettings::clipped(const std::vector<Tensor>& gradients) const {
  if (clip_norm == 0) return gradients;
  double squares = 0;
  for (const Tensor& one : gradients) squares += one.square().sum().item<double>();
  std::vector<Tensor> shorter;
  for (const Tensor& one : gradients) {
    shorter.push_back(one.mul(std::min(1.0, clip_norm / (std::sqrt(squares) + 1e-6))));
  }
  return shorter;
}

Tensor Optimizer::adam_direction(std::size_t i, const Tensor& d) {
  if (second_.size() <= i) {
    first_.push_back(at::zeros_like(d));
    second_.push_back(at::zeros_like(d));
  }
  const auto t = static_cast<double>(t_);
  first_[i] = first_[i].mul(0.9).add(d, 1 - 0.9);
  second_[i] = second_[i].mul(0.999).add(d.mul(d), 1 - 0.999);
  const Tensor m_hat = first_[i].div(1 - std::pow(0.9, t));
  const Tensor v_hat = second_[i].div(1 - std::pow(0.999, t));
  return m_hat.div(v_hat.sqrt().add(1e-8));
}

void Optimizer::step_(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                      double rate, const std::set<std::size_t>& undecayed) {
  ++t_;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double decay = undecayed.contains(i) ? 0 : settings_.weight_decay;
    const Tensor d = gradients[i].add(parameters[i], decay);
    Tensor direction = d;
    if (settings_.name == "adam") {
      direction = adam_direction(i, d);
    } else if (settings_.name != "sgd") {
      if (t_ == 1) {
        first_.push_back(d.clone());
      } else {
        first_[i] = first_[i].mul(settings_.momentum).add(d);
      }
      direction = settings_.name == "nesterov" ? d.add(first_[i], settings_.momentum) : first_[i];
    }
    parameters[i] = parameters[i].sub(direction, settings_.lr * rate);
  }
}

}  // namespace fedhpc::reference
