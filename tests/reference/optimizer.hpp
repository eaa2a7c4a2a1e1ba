#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc::reference {

struct OptimizerSettings {
  std::string name = "sgd";  ///< sgd, momentum, nesterov, adam
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  double clip_norm = 0;  ///< 0: none

  /// The gradients after torch.nn.utils.clip_grad_norm_.
  std::vector<Tensor> clipped(const std::vector<Tensor>& gradients) const;
};

/// One client's optimizer as PyTorch's documentation writes it (torch.optim.SGD with dampening 0,
/// torch.optim.Adam with betas (.9, .999) and eps 1e-8), tensor by tensor in float64.
class Optimizer {
 public:
  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}

  /// The learning rate is multiplied with `rate`; parameters that `undecayed` names by their place
  /// have no weight decay.
  void step_(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, double rate = 1,
             const std::set<std::size_t>& undecayed = {});

 private:
  Tensor adam_direction(std::size_t i, const Tensor& d);

  OptimizerSettings settings_;
  std::int64_t t_ = 0;
  std::vector<Tensor> first_;   // the momentum buffer, or Adam's m
  std::vector<Tensor> second_;  // Adam's v
};

}  // namespace fedhpc::reference
