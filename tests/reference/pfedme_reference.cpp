#include "reference/pfedme_reference.hpp"

#include <algorithm>

namespace fedhpc::reference {

PersonalOutcome pfedme(const Problem& problem, const PFedMeSettings& settings) {
  PersonalSteps steps{problem.optimizer, settings.lambda, settings.inner_steps};
  steps.optimizer.lr = settings.personal_lr;
  PersonalOutcome result(problem.clients.size());
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
        if (settings.restart_every_step) theta = w_k;
        local.count(steps.take_(problem, theta, w_k, problem.clients[place], batch), batch.size());
        const double eta = problem.lr * rate_of(problem, k, t, /*pass=*/0, step++);
        // w_k - eta lambda (w_k - theta); its statistics are theta's
        w_k = with_statistics(problem, mixed(w_k, theta, eta * settings.lambda), theta);
      }
      if (is_drawn) next.add(w_k, weight_of(problem, k));
      loss.add(local);
      if (local.samples == 0) continue;
      result.personal[place] = theta;
      result.local[place] = w_k;
    }
    const Parameters mean = next.mean_or(w);
    w = with_statistics(problem, mixed(w, mean, settings.beta), mean);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  result.complete(w);
  return result;
}

}  // namespace fedhpc::reference
