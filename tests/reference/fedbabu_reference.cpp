#include "reference/fedbabu_reference.hpp"

namespace fedhpc::reference {

FedBABUOutcome fedbabu(const Problem& problem, Part tuned) {
  FedBABUOutcome result;
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained = train(problem, k, t, {.part = Part::Body}, w);
      next.add(trained.parameters, weight_of(problem, k));
      loss.add(trained);
    }
    w = next.mean_or(w);
    for (const std::size_t place : trainable(problem, Part::Head))
      w[place] = problem.initial[place];
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  for (std::size_t k = 0; k < problem.clients.size(); ++k) {
    result.personal.push_back(train(problem, static_cast<std::int64_t>(k), problem.rounds,
                                    {.purpose = Purpose::Evaluate, .part = tuned}, w)
                                  .parameters);
  }
  return result;
}

}  // namespace fedhpc::reference
