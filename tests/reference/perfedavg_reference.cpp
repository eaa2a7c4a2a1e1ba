#include "reference/perfedavg_reference.hpp"

#include <cmath>

namespace fedhpc::reference {

namespace {

/// The pass of a further draw of the batches of pass 0.
std::int64_t pass_of(std::int64_t draw) { return draw * 65536; }

/// a + factor b.
Parameters plus(const Parameters& a, const Parameters& b, double factor) {
  Parameters sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i].add(b[i], factor));
  return sum;
}

double norm(const Problem& problem, const Parameters& parameters) {
  return flatten(chosen(parameters, trainable(problem))).norm().item<double>();
}

/// grad f(w; batch), which leaves running statistics alone.
Parameters gradient_at(const Problem& problem, Parameters w, const Client& client,
                       const std::vector<std::int64_t>& batch) {
  return training_loss_(problem, w, client, batch, Statistics::Stay).gradient;
}

/// H(w; batch) v.
Parameters curvature(const Problem& problem, const PerFedAvgSettings& settings, const Parameters& w,
                     const Parameters& v, const Client& client,
                     const std::vector<std::int64_t>& batch) {
  if (settings.curvature == Curvature::Exact) {
    return hessian_product(problem, w, v, client, batch);
  }
  const double h = settings.delta * (1 + norm(problem, w)) / norm(problem, v);
  const Parameters ahead = gradient_at(problem, plus(w, v, h), client, batch);
  const Parameters behind = gradient_at(problem, plus(w, v, -h), client, batch);
  Parameters product;
  for (std::size_t i = 0; i < w.size(); ++i) {
    product.push_back(ahead[i].sub(behind[i]).div(2 * h));
  }
  return product;
}

Trained local_update(const Problem& problem, const PerFedAvgSettings& settings, std::int64_t k,
                     std::int64_t round, const Parameters& start) {
  const Client& client = problem.clients[static_cast<std::size_t>(k)];
  const auto first = batches(problem, k, round, pass_of(0));
  const auto second = batches(problem, k, round, pass_of(1));
  const auto third = batches(problem, k, round, pass_of(2));
  Trained result;
  for (const Tensor& parameter : start) result.parameters.push_back(parameter.clone());
  Parameters& w = result.parameters;
  Optimizer outer(problem.optimizer);
  for (std::size_t t = 0; t < first.size(); ++t) {
    const LossAndGradient at_w = training_loss_(problem, w, client, first[t], Statistics::Move);
    result.count(at_w.loss, first[t].size());
    const Parameters w_hat = plus(w, at_w.gradient, -settings.inner_lr);
    Parameters direction = gradient_at(problem, w_hat, client, second[t]);
    if (settings.curvature != Curvature::None) {
      direction = plus(direction, curvature(problem, settings, w, direction, client, third[t]),
                       -settings.inner_lr);
    }
    Parameters next = w;
    outer.step_(next, problem.optimizer.clipped(direction));
    w = with_statistics(problem, next, w);
  }
  return result;
}

}  // namespace

PersonalOutcome perfedavg(const Problem& problem, const PerFedAvgSettings& settings) {
  PersonalOutcome result(problem.clients.size());
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained = local_update(problem, settings, k, t, w);
      next.add(trained.parameters, weight_of(problem, k));
      loss.add(trained);
    }
    w = next.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  for (std::size_t k = 0; k < problem.clients.size(); ++k) {
    const auto evaluation = batches(problem, static_cast<std::int64_t>(k), problem.rounds,
                                    /*pass=*/0, Purpose::Evaluate);
    if (evaluation.empty()) continue;
    Parameters adapted = w;
    const Parameters gradient =
        training_loss_(problem, adapted, problem.clients[k], evaluation.front(), Statistics::Move)
            .gradient;
    result.personal[k] = plus(adapted, gradient, -settings.inner_lr);
    result.local[k] = w;
  }
  result.complete(w);
  return result;
}

}  // namespace fedhpc::reference
