#include "reference/localonly_reference.hpp"

namespace fedhpc::reference {

LocalOutcome localonly(const Problem& problem) {
  LocalOutcome outcome;
  outcome.models.assign(problem.clients.size(), problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      Parameters& w_k = outcome.models[static_cast<std::size_t>(k)];
      const Trained trained = train(problem, k, t, /*pass=*/0, w_k, /*mu=*/0);
      w_k = trained.parameters;
      loss.add(trained);
    }
    outcome.train_loss.push_back(loss.mean());
  }
  return outcome;
}

}  // namespace fedhpc::reference
