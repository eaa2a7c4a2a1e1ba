#include "reference/lora_reference.hpp"

#include <cmath>

#include <ATen/ops/zeros.h>

namespace fedhpc::reference {

FactorOutcome lora(const Problem& problem, const FactorisationSettings& settings, double range) {
  require(settings.name.ends_with("lora"), "adapters are of LoRA or FFA-LoRA");
  const FactorisedModel model(problem, settings);
  FactorPoint point{model, problem.initial, {}};
  std::vector<Parameters> first;
  for (const FactorisedLayer& layer : model.layers()) {
    const auto inputs = static_cast<double>(layer.shapes()[0][1]);
    const Tensor a = uniform_factor(problem.seed, layer, 0, 0, range / std::sqrt(inputs));
    const Tensor b = at::zeros(layer.shapes()[1], at::kDouble);
    const bool frozen = layer.constants() == 1;
    point.constants.push_back(frozen ? Parameters{a} : Parameters{});
    first.push_back(frozen ? Parameters{b} : Parameters{a, b});
  }
  FactorOutcome result = outcome_of(model);
  result.factors = model.row(first, problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    result.factors = averaging_factors(problem, t, point, result.factors, result);
  }
  result.outcome.global = flatten(point.at(result.factors));
  return result;
}

}  // namespace fedhpc::reference
