#include "reference/feedback_reference.hpp"

#include <ATen/ATen.h>

#include "reference/link.hpp"
#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

namespace {

/// The mean of what arrives of these clients' training from w; 0 where nobody weighs anything.
struct Move {
  Tensor mean;
  double weight = 0;
};

Move move_of(const Problem& problem, const std::vector<std::int64_t>& clients, std::int64_t t,
             std::int64_t pass, const Tensor& w, Link& link, RoundLoss& loss) {
  Move move{at::zeros_like(w)};
  for (const std::int64_t i : clients) {
    const Tensor start = link.down(i, w);
    const Trained trained = train(problem, i, t, pass, unflatten(start, problem.initial), /*mu=*/0);
    const double p = weight_of(problem, i);
    move.mean = move.mean + p * link.up(i, flatten(trained.parameters) - start);
    move.weight += p;
    loss.add(trained);
  }
  if (move.weight > 0) move.mean = move.mean / move.weight;
  return move;
}

}  // namespace

Outcome top_k_fedavg(const Problem& problem, std::int64_t k, Feedback feedback,
                     std::int64_t k_down) {
  Outcome outcome;
  Tensor w = flatten(problem.initial);
  Link link(problem, w, {.k = k, .feedback = feedback, .k_down = k_down});
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    RoundLoss loss;
    w = w + move_of(problem, cohort(problem, t), t, /*pass=*/0, w, link, loss).mean;
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
        const Move move = move_of(problem, drawn.clients, t, r, of_edge, of_clients, loss);
        of_edge = of_edge + move.mean;
        weight = move.weight;
      }
      if (weight == 0) continue;  // nobody reads what it sends
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
