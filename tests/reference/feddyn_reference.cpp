#include "reference/feddyn_reference.hpp"

#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

Outcome feddyn(const Problem& problem, double alpha) {
  const std::vector<std::size_t> moving = trainable(problem);
  Outcome outcome;
  Parameters theta = problem.initial;
  Parameters h = no_shift(problem);
  std::vector<Parameters> gradients(problem.clients.size(), no_shift(problem));
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average models;
    RoundLoss loss;
    const std::vector<std::int64_t> drawn = cohort(problem, t);
    for (const std::int64_t k : drawn) {
      Parameters& own = gradients[static_cast<std::size_t>(k)];
      const Trained local =
          shifted_train(problem, k, t, theta, plus(no_shift(problem), -1, own), alpha);
      models.add(local.parameters, weight_of(problem, k));
      own = plus(own, -alpha, plus(chosen(local.parameters, moving), -1, chosen(theta, moving)));
      loss.add(local);
    }
    outcome.train_loss.push_back(loss.mean());
    if (share_of(problem, drawn) == 0) continue;  // nobody trained
    const Parameters mean = models.mean_or(theta);
    h = plus(h, -alpha * share_of(problem, drawn),
             plus(chosen(mean, moving), -1, chosen(theta, moving)));
    const Parameters next = plus(chosen(mean, moving), -1 / alpha, h);
    theta = mean;
    for (std::size_t i = 0; i < moving.size(); ++i) theta[moving[i]] = next[i];
  }
  outcome.global = flatten(theta);
  return outcome;
}

}  // namespace fedhpc::reference
