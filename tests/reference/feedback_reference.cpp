#include "reference/feedback_reference.hpp"

#include <ATen/ATen.h>

#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

namespace {

Tensor largest(const Tensor& x, std::int64_t k) {
  const Tensor places = std::get<1>(x.abs().topk(k));
  return at::zeros_like(x).index_copy(0, places, x.index_select(0, places));
}

/// What clients and server send each other of one thing, a vector.
class Link {
 public:
  Link(const Problem& problem, const Tensor& start, std::int64_t k, Feedback feedback,
       std::int64_t k_down)
      : known_(problem.clients.size(), start),
        kept_(problem.clients.size(), at::zeros_like(start)),
        k_(k),
        feedback_(feedback),
        k_down_(k_down) {}

  /// What client i has after the server has sent it w.
  Tensor down(std::int64_t i, const Tensor& w) {
    Tensor& has = known_[static_cast<std::size_t>(i)];
    has = k_down_ == 0 ? w : has + largest(w - has, k_down_);
    return has;
  }

  /// What the server reads of x from client i.
  Tensor up(std::int64_t i, const Tensor& x) {
    Tensor& state = kept_[static_cast<std::size_t>(i)];  // e or g
    Tensor read = largest(x, k_);
    if (feedback_ == Feedback::Ef14) {
      read = largest(state + x, k_);
      state = state + x - read;
    } else if (feedback_ == Feedback::Ef21) {
      read = state + largest(x - state, k_);
      state = read;
    }
    return read;
  }

 private:
  std::vector<Tensor> known_;
  std::vector<Tensor> kept_;
  std::int64_t k_;
  Feedback feedback_;
  std::int64_t k_down_;
};

}  // namespace

Outcome top_k_fedavg(const Problem& problem, std::int64_t k, Feedback feedback,
                     std::int64_t k_down) {
  Outcome outcome;
  Tensor w = flatten(problem.initial);
  Link link(problem, w, k, feedback, k_down);
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

Outcome top_k_scaffold(const Problem& problem, std::int64_t k, Feedback feedback,
                       std::int64_t k_down) {
  Outcome outcome;
  Tensor x = flatten(problem.initial);
  Tensor c = at::zeros_like(x);
  std::vector<Tensor> own(problem.clients.size(), c);  // c_i
  Link models(problem, x, k, feedback, k_down);
  Link controls(problem, c, k, feedback, k_down);
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
