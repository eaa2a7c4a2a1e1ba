#include "reference/fedrep_reference.hpp"

namespace fedhpc::reference {

Parameters with_head_of(const Problem& problem, const Parameters& model, const Parameters& other) {
  Parameters mixed = model;
  for (const std::size_t place : trainable(problem, Part::Head)) mixed[place] = other[place];
  return mixed;
}

FedRepOutcome fedrep(const Problem& problem, std::int64_t head_passes, bool one_optimizer) {
  FedRepOutcome result;
  Parameters phi = problem.initial;  // what it holds for a head is never used
  std::vector<Parameters>& h = result.personal;
  h.assign(problem.clients.size(), problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      Parameters& h_k = h[static_cast<std::size_t>(k)];
      Parameters w_k = with_head_of(problem, phi, h_k);
      Optimizer of_head(problem.optimizer);  // its states of the body are 0 when that begins
      for (std::int64_t pass = 0; pass <= head_passes; ++pass) {
        const Part part = pass < head_passes ? Part::Head : Part::Body;
        Optimizer* optimizer = one_optimizer && part == Part::Head ? &of_head : nullptr;
        const Trained trained =
            train(problem, k, t, {.pass = pass, .optimizer = optimizer, .part = part}, w_k);
        w_k = trained.parameters;
        loss.add(trained);
      }
      h_k = w_k;
      next.add(w_k, weight_of(problem, k));
    }
    phi = next.mean_or(phi);
    result.train_loss.push_back(loss.mean());
  }
  for (Parameters& h_k : h) h_k = with_head_of(problem, phi, h_k);
  return result;
}

}  // namespace fedhpc::reference
