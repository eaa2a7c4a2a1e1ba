#include "reference/moon_reference.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/log.h>

namespace fedhpc::reference {

MOONOutcome moon(const Problem& problem, double mu, double tau) {
  MOONOutcome result;
  std::vector<Parameters> previous(
      problem.clients.size());  // none before a client's first training
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    double contrast = 0;
    double batches = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      Parameters& last = previous[static_cast<std::size_t>(k)];
      const Tensor of_global = flatten(w);
      const Tensor of_last = last.empty() ? of_global : flatten(last);
      const auto term = [&](const Tensor& z, const Tensor& features) {
        const auto similarity = [&](const Tensor& row) {
          const Tensor other = embedding(problem, row, features, Use::Evaluation);
          return (at::cosine_similarity(z, other) / tau).exp();
        };
        const Tensor near = similarity(of_global);
        const Tensor mean = -(near / (near + similarity(of_last))).log().mean();
        contrast += mean.item<double>();
        batches += 1;
        return mu * mean;
      };
      const Trained local = train(problem, k, t, {.term = term}, w);
      if (local.samples > 0) last = local.parameters;
      next.add(local.parameters, weight_of(problem, k));
      loss.add(local);
    }
    w = next.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
    result.contrast = contrast / batches;
  }
  result.outcome.global = flatten(w);
  return result;
}

}  // namespace fedhpc::reference
