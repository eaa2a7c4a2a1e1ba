#include "reference/fedhm_reference.hpp"

#include <cmath>

namespace fedhpc::reference {

namespace {

Parameters truncated(const FactorisedModel& model, const Parameters& w) {
  std::vector<Parameters> factors;
  for (const FactorisedLayer& layer : model.layers()) {
    factors.push_back(layer.fit(w[layer.place()]));
  }
  return model.row(factors, w);
}

/// ||W - expand(u)|| / ||W|| over factorised layers.
double truncation_error(const FactorPoint& point, const Parameters& w, const Parameters& u) {
  const Parameters near = point.at(u);
  double error = 0;
  double length = 0;
  for (const FactorisedLayer& layer : point.model.layers()) {
    error += w[layer.place()].sub(near[layer.place()]).square().sum().item<double>();
    length += w[layer.place()].square().sum().item<double>();
  }
  return std::sqrt(error / length);
}

}  // namespace

FactorOutcome fedhm(const Problem& problem, const FactorisationSettings& settings) {
  require(settings.name == "low_rank", "FedHM has layers U V^T");
  const FactorisedModel model(problem, settings);
  const FactorPoint point{model, model.without_factorised(problem.initial),
                          std::vector<Parameters>(model.layers().size())};
  FactorOutcome result = outcome_of(model);
  Parameters w = problem.initial;
  Parameters u = truncated(model, w);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained = train_factors(problem, k, t, point, u);
      next.add(point.at(trained.parameters), weight_of(problem, k));
      loss.add(trained);
    }
    w = next.mean_or(w);
    u = truncated(model, w);
    result.outcome.train_loss.push_back(loss.mean());
    result.truncation_error.push_back(truncation_error(point, w, u));
  }
  result.factors = u;
  result.outcome.global = flatten(w);
  return result;
}

}  // namespace fedhpc::reference
