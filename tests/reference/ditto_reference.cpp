#include "reference/ditto_reference.hpp"

namespace fedhpc::reference {

DittoOutcome ditto(const Problem& problem, double mu) {
  DittoOutcome result;
  result.personal.assign(problem.clients.size(), problem.initial);
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      Parameters& v_k = result.personal[static_cast<std::size_t>(k)];
      const Trained common = train(problem, k, t, {.pass = 0}, w);
      const Trained own = train(problem, k, t, {.pass = 0, .mu = mu, .centre = &w}, v_k);
      v_k = own.parameters;
      next.add(common.parameters, weight_of(problem, k));
      loss.add(common);
      loss.add(own);
    }
    w = next.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  return result;
}

}  // namespace fedhpc::reference
