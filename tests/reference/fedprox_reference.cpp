#include "reference/fedprox_reference.hpp"

namespace fedhpc::reference {

Outcome fedprox(const Problem& problem, double mu) {
  Outcome outcome;
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained = train(problem, k, t, /*pass=*/0, w, mu);
      next.add(trained.parameters, weight_of(problem, k));
      loss.add(trained);
    }
    w = next.mean_or(w);
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = flatten(w);
  return outcome;
}

}  // namespace fedhpc::reference
