#include "reference/fednova_reference.hpp"

#include <cmath>

#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

namespace {

/// The vector a of `steps` local steps: x - y = eta sum_k a_k g_k. Entry k is what gradient k alone,
/// of 1, moves until the end.
std::vector<double> weights_of_gradients(const OptimizerSettings& rule, double eta, double mu,
                                         std::size_t steps) {
  std::vector<double> a;
  for (std::size_t k = 0; k < steps; ++k) {
    double moved = 0;
    double velocity = 0;
    for (std::size_t s = k; s < steps; ++s) {
      const double gradient = (s == k ? 1.0 : 0.0) - eta * mu * moved;
      velocity = rule.momentum * velocity + gradient;
      moved += rule.name == "nesterov" ? gradient + rule.momentum * velocity : velocity;
    }
    a.push_back(moved);
  }
  return a;
}

}  // namespace

FedNovaOutcome fednova(const Problem& problem, double mu, const ServerSettings& settings) {
  FedNovaOutcome result;
  Server server(settings);
  Parameters x = problem.initial;
  const std::vector<std::size_t> moving = trainable(problem);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average directions;  // (y_i - x) / ||a_i||, of statistics the change
    RoundLoss loss;
    double effective = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained y = train(problem, k, t, /*pass=*/0, x, mu);
      const double eta = problem.optimizer.lr * rate_of(problem, k, t, 0, 0);
      double length = 0;
      for (const double one :
           weights_of_gradients(problem.optimizer, eta, mu, batches(problem, k, t, 0).size())) {
        length += std::abs(one);
      }
      Parameters direction = plus(y.parameters, -1, x);
      for (const std::size_t i : moving) {
        direction[i] = length > 0 ? direction[i].div(length) : direction[i].mul(0);
      }
      directions.add(direction, weight_of(problem, k));
      effective += weight_of(problem, k) * length;
      loss.add(y);
    }
    effective /= directions.weight();
    result.effective_steps.push_back(effective);
    Parameters update = directions.mean_or({});
    for (const std::size_t i : moving) update[i] = update[i].mul(effective);
    x = server.step(problem, x, plus(x, 1, update));
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(x);
  return result;
}

}  // namespace fedhpc::reference
