#pragma once

#include "reference/personal.hpp"

namespace fedhpc::reference {

/// What stands for the Hessian in the gradient of a meta-function.
enum class Curvature {
  None,        ///< FO
  Difference,  ///< HF
  Exact        ///< the Hessian itself, by automatic differentiation
};

struct PerFedAvgSettings {
  double inner_lr = 0.05;  ///< alpha
  Curvature curvature = Curvature::None;
  double delta = 1e-3;  ///< ||h v|| / (1 + ||w||)
};

/// Fallah et al. 2020, Algorithm 1. Personal models: w after a step of size alpha on the first
/// batch of the last round's evaluation; local ones: w.
PersonalOutcome perfedavg(const Problem& problem, const PerFedAvgSettings& settings);

}  // namespace fedhpc::reference
