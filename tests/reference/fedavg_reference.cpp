#include "reference/fedavg_reference.hpp"

#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

Outcome averaging(const Problem& problem, double mu) {
  Outcome outcome;
  Parameters global = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Parameters sum;
    for (const Tensor& parameter : global) sum.push_back(at::zeros_like(parameter));
    double total_weight = 0;
    double loss = 0;
    double samples = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      const Client& client = problem.clients[static_cast<std::size_t>(k)];
      const auto n_k = static_cast<double>(client.labels.size(0));
      if (n_k == 0) continue;
      Parameters w_k;
      for (const Tensor& parameter : global) w_k.push_back(parameter.clone());
      Optimizer optimizer(problem.optimizer);  // fresh for every client and round
      for (const auto& batch : batches(problem, k, t, 0)) {
        LossAndGradient step = loss_and_gradient(w_k, client, batch);
        loss += step.loss * static_cast<double>(batch.size());
        samples += static_cast<double>(batch.size());
        for (std::size_t i = 0; i < w_k.size(); ++i) {
          step.gradient[i] = step.gradient[i].add(w_k[i].sub(global[i]), mu);
        }
        optimizer.step_(w_k, step.gradient);
      }
      const double weight = problem.uniform ? 1.0 : n_k;
      for (std::size_t i = 0; i < w_k.size(); ++i) sum[i] = sum[i].add(w_k[i], weight);
      total_weight += weight;
    }
    if (total_weight > 0) {
      for (std::size_t i = 0; i < sum.size(); ++i) global[i] = sum[i].div(total_weight);
    }
    outcome.train_loss.push_back(loss / samples);
  }
  outcome.global = flatten(global);
  return outcome;
}

Outcome fedavg(const Problem& problem) { return averaging(problem, 0); }

}  // namespace fedhpc::reference
