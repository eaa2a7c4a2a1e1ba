#include "reference/shifted_training.hpp"

#include <algorithm>
#include <ranges>

#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

Trained shifted_train(const Problem& problem, std::int64_t k, std::int64_t round,
                      const Parameters& start, const Parameters& shift, double mu) {
  const Client& client = problem.clients[static_cast<std::size_t>(k)];
  const std::vector<std::size_t> moving = trainable(problem);
  const Parameters centre = chosen(start, moving);
  Trained result;
  for (const Tensor& parameter : start) result.parameters.push_back(parameter.clone());
  Optimizer optimizer(problem.optimizer);
  std::size_t steps = 0;
  for (const auto& batch : batches(problem, k, round, /*pass=*/0)) {
    const LossAndGradient step =
        training_loss_(problem, result.parameters, client, batch, Statistics::Move);
    result.count(step.loss, batch.size());
    Parameters parameters = chosen(result.parameters, moving);
    const Parameters gradient = problem.optimizer.clipped(chosen(step.gradient, moving));
    optimizer.step_(parameters, pulled(plus(gradient, 1, shift), parameters, centre, mu),
                    rate_of(problem, k, round, /*pass=*/0, steps++), {});
    for (std::size_t i = 0; i < moving.size(); ++i) result.parameters[moving[i]] = parameters[i];
  }
  return result;
}

Parameters plus(const Parameters& a, double factor, const Parameters& b) {
  Parameters sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i].add(b[i].mul(factor)));
  return sum;
}

Parameters no_shift(const Problem& problem) {
  Parameters zeros;
  for (const Tensor& one : chosen(problem.initial, trainable(problem))) {
    zeros.push_back(at::zeros_like(one));
  }
  return zeros;
}

double share_of(const Problem& problem, const std::vector<std::int64_t>& cohort) {
  const auto trains = [&](std::int64_t k) {
    return problem.clients[static_cast<std::size_t>(k)].labels.size(0) > 0;
  };
  const auto all = std::views::iota(std::int64_t{0}, std::ssize(problem.clients));
  return static_cast<double>(std::ranges::count_if(cohort, trains)) /
         static_cast<double>(std::ranges::count_if(all, trains));
}

}  // namespace fedhpc::reference
