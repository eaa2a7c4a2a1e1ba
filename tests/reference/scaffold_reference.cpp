#include "reference/scaffold_reference.hpp"

#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

namespace {

/// The gradient at x on all samples of client k.
Parameters gradient_on_all(const Problem& problem, std::int64_t k, std::int64_t round,
                           const Parameters& x) {
  const Client& client = problem.clients[static_cast<std::size_t>(k)];
  Parameters model;
  for (const Tensor& one : x) model.push_back(one.clone());
  Parameters sum = no_shift(problem);
  for (const auto& batch : batches_of_share(problem, k, round, /*pass=*/1, /*share=*/1)) {
    const LossAndGradient of_batch =
        training_loss_(problem, model, client, batch, Statistics::Move);
    const double share =
        static_cast<double>(batch.size()) / static_cast<double>(client.labels.size(0));
    sum = plus(sum, share, chosen(of_batch.gradient, trainable(problem)));
  }
  return sum;
}

}  // namespace

ScaffoldOutcome scaffold(const Problem& problem, Control control, const ServerSettings& settings) {
  const std::vector<std::size_t> moving = trainable(problem);
  ScaffoldOutcome result{
      .outcome = {},
      .control = no_shift(problem),
      .controls = std::vector<Parameters>(problem.clients.size(), no_shift(problem))};
  Server server(settings);
  Parameters x = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average models;
    Average changes;
    RoundLoss loss;
    const std::vector<std::int64_t> drawn = cohort(problem, t);
    for (const std::int64_t k : drawn) {
      Parameters& own = result.controls[static_cast<std::size_t>(k)];
      const Trained y = shifted_train(problem, k, t, x, plus(result.control, -1, own), 0);
      const auto steps = static_cast<double>(batches(problem, k, t, /*pass=*/0).size());
      Parameters next = own;
      if (steps > 0 && control == Control::Gradient) next = gradient_on_all(problem, k, t, x);
      if (steps > 0 && control == Control::Steps) {
        const double eta = problem.optimizer.lr * rate_of(problem, k, t, 0, 0);
        const Parameters moved = plus(chosen(x, moving), -1, chosen(y.parameters, moving));
        next = plus(plus(own, -1, result.control), 1 / (steps * eta), moved);
      }
      models.add(y.parameters, weight_of(problem, k));
      changes.add(plus(next, -1, own), weight_of(problem, k));
      own = next;
      loss.add(y);
    }
    x = server.step(problem, x, models.mean_or(x));
    result.control =
        plus(result.control, share_of(problem, drawn), changes.mean_or(no_shift(problem)));
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(x);
  return result;
}

}  // namespace fedhpc::reference
