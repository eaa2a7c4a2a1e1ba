#include "reference/factor_training.hpp"

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>

namespace fedhpc::reference {

namespace {

/// Of the weights of factorised layers, one after the other.
Tensor factorised_part(const FactorisedModel& model, const Parameters& weights) {
  Parameters some;
  for (const FactorisedLayer& layer : model.layers()) some.push_back(weights[layer.place()]);
  return flatten(some);
}

/// Gradients of the loss in a row u whose weights have the gradient dw: by autograd through w(u).
Parameters pulled_back(const FactorPoint& point, const Parameters& u, const Parameters& dw) {
  Parameters leaves;
  for (const Tensor& one : u) leaves.push_back(one.detach().clone().requires_grad_(true));
  flatten(point.at(leaves)).dot(flatten(dw)).backward();
  Parameters du;
  for (const Tensor& leaf : leaves) du.push_back(leaf.grad());
  return du;
}

}  // namespace

Trained train_factors(const Problem& problem, std::int64_t k, std::int64_t round,
                      const FactorPoint& point, const Parameters& start, std::int64_t pass,
                      Optimizer* optimizer) {
  const Client& client = problem.clients[static_cast<std::size_t>(k)];
  const std::vector<std::size_t> moving = point.model.moving();
  Trained result{.parameters = start};
  Parameters& u = result.parameters;
  Optimizer fresh(problem.optimizer);
  std::size_t steps = 0;
  for (const auto& batch : batches(problem, k, round, pass)) {
    Parameters w = point.at(u);
    const LossAndGradient step = training_loss_(problem, w, client, batch, Statistics::Move);
    result.count(step.loss, batch.size());
    const Parameters du = pulled_back(point, u, step.gradient);
    point.model.take_buffers_(u, w);
    Parameters parameters = chosen(u, moving);
    (optimizer != nullptr ? *optimizer : fresh)
        .step_(parameters, problem.optimizer.clipped(chosen(du, moving)),
               rate_of(problem, k, round, pass, steps++));
    for (std::size_t i = 0; i < moving.size(); ++i) u[moving[i]] = parameters[i];
  }
  return result;
}

Parameters averaging_factors(const Problem& problem, std::int64_t round, const FactorPoint& point,
                             const Parameters& u, FactorOutcome& result) {
  Average factors;
  Average expanded;
  RoundLoss loss;
  for (const std::int64_t k : cohort(problem, round)) {
    const Trained trained = train_factors(problem, k, round, point, u);
    factors.add(trained.parameters, weight_of(problem, k));
    expanded.add(point.at(trained.parameters), weight_of(problem, k));
    loss.add(trained);
  }
  const Parameters next = factors.mean_or(u);
  const Parameters before = point.at(u);
  const Parameters after = point.at(next);
  const Tensor mean = factorised_part(point.model, expanded.mean_or(after));
  result.outcome.train_loss.push_back(loss.mean());
  result.aggregation_gap.push_back(
      mean.sub(factorised_part(point.model, after)).norm().item<double>());
  result.effective_rank.emplace_back();
  for (const FactorisedLayer& layer : point.model.layers()) {
    const Tensor change = after[layer.place()].sub(before[layer.place()]);
    result.effective_rank.back().push_back(effective_rank(layer.matrix(change)));
  }
  return next;
}

FactorOutcome outcome_of(const FactorisedModel& model) {
  FactorOutcome result;
  result.row_size = model.row_size();
  for (const FactorisedLayer& layer : model.layers()) result.layers.push_back(layer.name());
  return result;
}

FactorOutcome averaged_factors(const Problem& problem, const FactorisationSettings& settings,
                               const std::optional<double>& range) {
  const FactorisedModel model(problem, settings);
  std::vector<Parameters> drawn;
  if (range) {
    for (const FactorisedLayer& layer : model.layers()) {
      drawn.push_back(uniform_factors(problem.seed, layer, 0, *range).factors);
    }
  } else {
    drawn = model.normal_factors(problem.seed);
  }
  const FactorPoint point{model, model.without_factorised(problem.initial),
                          std::vector<Parameters>(model.layers().size())};
  FactorOutcome result = outcome_of(model);
  result.factors = model.row(drawn, problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    result.factors = averaging_factors(problem, t, point, result.factors, result);
  }
  result.outcome.global = flatten(point.at(result.factors));
  return result;
}

}  // namespace fedhpc::reference
