#include "reference/dsgd_reference.hpp"

#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

GradientSum gradient_sum(const Problem& problem, std::int64_t k, std::int64_t round,
                         const Parameters& start) {
  const Client& client = problem.clients[static_cast<std::size_t>(k)];
  GradientSum result;
  Parameters model;
  Parameters sum;
  for (const Tensor& parameter : start) {
    model.push_back(parameter.clone());
    sum.push_back(at::zeros_like(parameter));
  }
  for (const auto& batch : batches(problem, k, round, /*pass=*/0)) {
    const LossAndGradient step = training_loss_(problem, model, client, batch, Statistics::Move);
    result.counted.count(step.loss, batch.size());
    const std::vector<std::size_t> moving = trainable(problem);
    const Parameters gradient = problem.optimizer.clipped(chosen(step.gradient, moving));
    for (std::size_t i = 0; i < moving.size(); ++i) {
      sum[moving[i]] = sum[moving[i]].add(gradient[i]);
      model[moving[i]] = model[moving[i]].sub(gradient[i], problem.lr);
    }
  }
  for (std::size_t place = 0; place < model.size(); ++place) {
    if (!has(problem.layout->fields()[place].tags, Tag::Buffer)) continue;
    sum[place] = start[place].sub(model[place]).div(problem.lr);
  }
  result.values = flatten(sum);
  return result;
}

Outcome dsgd(const Problem& problem) {
  Outcome outcome{.global = flatten(problem.initial), .train_loss = {}};
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(outcome.global);
    double weight = 0;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const GradientSum sent =
          gradient_sum(problem, k, t, unflatten(outcome.global, problem.initial));
      sum = sum.add(sent.values, weight_of(problem, k));
      weight += weight_of(problem, k);
      loss.add(sent.counted);
    }
    if (weight > 0) outcome.global = outcome.global.sub(sum, problem.lr / weight);
    outcome.train_loss.push_back(loss.mean());
  }
  return outcome;
}

}  // namespace fedhpc::reference
