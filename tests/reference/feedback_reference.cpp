#include "reference/feedback_reference.hpp"

#include <ATen/ATen.h>

#include "reference/link.hpp"
#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

Outcome top_k_fedavg(const Problem& problem, std::int64_t k, Feedback feedback,
                     std::int64_t k_down) {
  Outcome outcome;
  Tensor w = flatten(problem.initial);
  Link link(problem, w, {.k = k, .feedback = feedback, .k_down = k_down});
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(w);
    double weight = 0;
    RoundLoss loss;
    for (const std::int64_t i : cohort(problem, t)) {
      const Tensor start = link.down(i, w);
      const Trained trained =
          train(problem, i, t, /*pass=*/0, unflatten(start, problem.initial), /*mu=*/0);
      const double p = weight_of(problem, i);
      sum = sum + p * link.up(i, flatten(trained.parameters) - start);
      weight += p;
      loss.add(trained);
    }
    if (weight > 0) w = w + sum / weight;
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = w;
  return outcome;
}

Outcome top_k_hierfavg(const Problem& problem, std::int64_t kappa_2, std::int64_t k,
                       Feedback feedback, std::int64_t k_down) {
  Outcome outcome;
  Tensor w = flatten(problem.initial);
  const LinkSettings settings{.k = k, .feedback = feedback, .k_down = k_down};
  Link of_clients(problem, w, settings);
  Link of_edges(problem, w, settings);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(w);
    double all = 0;
    RoundLoss loss;
    for (const EdgeCohort& drawn : edge_cohorts(problem, t)) {
      const Tensor has = of_edges.down(drawn.edge, w);
      Tensor of_edge = has;
      double weight = 0;
      for (std::int64_t r = 0; r < kappa_2; ++r) {
        Tensor moves = at::zeros_like(w);
        weight = 0;
        for (const std::int64_t i : drawn.clients) {
          const Tensor start = of_clients.down(i, of_edge);
          const Trained trained =
              train(problem, i, t, /*pass=*/r, unflatten(start, problem.initial), /*mu=*/0);
          const double p = weight_of(problem, i);
          moves = moves + p * of_clients.up(i, flatten(trained.parameters) - start);
          weight += p;
          loss.add(trained);
        }
        if (weight > 0) of_edge = of_edge + moves / weight;
      }
      sum = sum + weight * of_edges.up(drawn.edge, of_edge - has);
      all += weight;
    }
    if (all > 0) w = w + sum / all;
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = w;
  return outcome;
}

Outcome top_k_scaffold(const Problem& problem, std::int64_t k, Feedback feedback,
                       std::int64_t k_down) {
  Outcome outcome;
  Tensor x = flatten(problem.initial);
  Tensor c = at::zeros_like(x);
  std::vector<Tensor> own(problem.clients.size(), c);  // c_i
  Link models(problem, x, {.k = k, .feedback = feedback, .k_down = k_down});
  Link controls(problem, c, {.k = k, .feedback = feedback, .k_down = k_down});
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor moves = at::zeros_like(x);
    Tensor changes = at::zeros_like(x);
    double weight = 0;
    RoundLoss loss;
    const std::vector<std::int64_t> drawn = cohort(problem, t);
    for (const std::int64_t i : drawn) {
      Tensor& of_client = own[static_cast<std::size_t>(i)];
      const Tensor start = models.down(i, x);
      const Tensor common = controls.down(i, c);
      const Trained trained =
          shifted_train(problem, i, t, unflatten(start, problem.initial),
                        unflatten(common - of_client, problem.initial), /*mu=*/0);
      const Tensor move = flatten(trained.parameters) - start;
      const auto steps = static_cast<double>(batches(problem, i, t, /*pass=*/0).size());
      const double eta = problem.optimizer.lr * rate_of(problem, i, t, 0, 0);
      const Tensor change = steps > 0 ? -common - move / (steps * eta) : at::zeros_like(c);
      of_client = of_client + change;
      const double p = weight_of(problem, i);
      moves = moves + p * models.up(i, move);
      changes = changes + p * controls.up(i, change);
      weight += p;
      loss.add(trained);
    }
    if (weight > 0) {
      x = x + moves / weight;
      c = c + share_of(problem, drawn) / weight * changes;
    }
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = x;
  return outcome;
}

}  // namespace fedhpc::reference
