#include "reference/pfedme_reference.hpp"

#include <algorithm>

namespace fedhpc::reference {

PersonalOutcome pfedme(const Problem& problem, const PFedMeSettings& settings) {
  PersonalSteps steps{problem.optimizer, settings.lambda, settings.inner_steps};
  steps.optimizer.lr = settings.personal_lr;
  PersonalOutcome result(problem.clients.size());
  const std::vector<std::size_t> moving = trainable(problem);
  const std::vector<std::size_t> none;
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    const std::vector<std::int64_t> drawn = cohort(problem, t);
    for (std::int64_t k = 0; k < std::ssize(problem.clients); ++k) {
      const bool is_drawn = std::ranges::find(drawn, k) != drawn.end();
      if (!is_drawn && !settings.all_train) continue;
      const auto place = static_cast<std::size_t>(k);
      Trained local{.parameters = w};
      Parameters& w_k = local.parameters;
      Parameters theta = w;
      std::size_t step = 0;
      for (const auto& batch : batches(problem, k, t, /*pass=*/0)) {
        for (const std::size_t i : settings.restart_every_step ? moving : none) theta[i] = w_k[i];
        local.count(steps.take_(theta, w_k, problem.clients[place], batch), batch.size());
        const double eta = problem.lr * rate_of(problem, k, t, /*pass=*/0, step++);
        w_k = mixed(w_k, theta, eta * settings.lambda);  // w_k - eta lambda (w_k - theta)
      }
      if (is_drawn) next.add(w_k, weight_of(problem, k));
      loss.add(local);
      if (local.samples == 0) continue;
      result.personal[place] = theta;
      result.local[place] = w_k;
    }
    w = mixed(w, next.mean_or(w), settings.beta);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  result.complete(w);
  return result;
}

}  // namespace fedhpc::reference
