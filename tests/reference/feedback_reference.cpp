#include "reference/feedback_reference.hpp"

#include <ATen/ATen.h>

namespace fedhpc::reference {

namespace {

Tensor largest(const Tensor& x, std::int64_t k) {
  const Tensor places = std::get<1>(x.abs().topk(k));
  return at::zeros_like(x).index_copy(0, places, x.index_select(0, places));
}

}  // namespace

Outcome top_k_fedavg(const Problem& problem, std::int64_t k, Feedback feedback,
                     std::int64_t k_down) {
  Outcome outcome;
  Tensor w = flatten(problem.initial);
  std::vector<Tensor> known(problem.clients.size(), w);
  std::vector<Tensor> kept(problem.clients.size(), at::zeros_like(w));  // e or g
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(w);
    double weight = 0;
    RoundLoss loss;
    for (const std::int64_t i : cohort(problem, t)) {
      Tensor& start = known[static_cast<std::size_t>(i)];
      start = k_down == 0 ? w : start + largest(w - start, k_down);
      const Trained trained =
          train(problem, i, t, /*pass=*/0, unflatten(start, problem.initial), /*mu=*/0);
      const Tensor x = flatten(trained.parameters) - start;
      Tensor& state = kept[static_cast<std::size_t>(i)];
      Tensor read = largest(x, k);
      if (feedback == Feedback::Ef14) {
        read = largest(state + x, k);
        state = state + x - read;
      } else if (feedback == Feedback::Ef21) {
        read = state + largest(x - state, k);
        state = read;
      }
      const double p = weight_of(problem, i);
      sum = sum + p * read;
      weight += p;
      loss.add(trained);
    }
    if (weight > 0) w = w + sum / weight;
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = w;
  return outcome;
}

}  // namespace fedhpc::reference
