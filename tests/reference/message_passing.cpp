#include "reference/message_passing.hpp"

#include <map>

#include "reference/network.hpp"

namespace fedhpc::reference {

namespace {

Parameters weighted_sum(const std::vector<Parameters>& models, const std::vector<double>& weights) {
  Parameters sum;
  for (std::size_t p = 0; p < models[0].size(); ++p) {
    sum.push_back(models[0][p].mul(weights[0]));
    for (std::size_t j = 1; j < models.size(); ++j) {
      sum[p] = sum[p].add(models[j][p].mul(weights[j]));
    }
  }
  return sum;
}

}  // namespace

MessagesOutcome message_passing(const Problem& problem, double lambda, const Weights& weights,
                                Link* link) {
  MessagesOutcome outcome;
  outcome.models.assign(problem.clients.size(), problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    const std::vector<std::int64_t> drawn = cohort(problem, t);
    std::vector<Parameters> moving;  // by gradients: models are compared by these alone
    for (const Parameters& model : outcome.models) {
      moving.push_back(chosen(model, trainable(problem)));
    }
    std::map<std::int64_t, Parameters> messages;
    for (const std::int64_t i : drawn) {
      const auto xi = weights(static_cast<std::size_t>(i), moving);
      messages[i] = weighted_sum(outcome.models, xi);
    }
    RoundLoss loss;
    for (const std::int64_t i : drawn) {
      const Parameters start = received(link, i, messages[i]);
      const Trained trained = train(problem, i, t, /*pass=*/0, start, lambda);
      loss.add(trained);
      const Parameters arrived = read(link, i, trained.parameters);
      if (trained.samples > 0) outcome.models[static_cast<std::size_t>(i)] = arrived;
    }
    outcome.train_loss.push_back(loss.mean());
  }
  return outcome;
}

double inner_product(const Parameters& a, const Parameters& b) {
  double sum = 0;
  for (std::size_t p = 0; p < a.size(); ++p) sum += a[p].mul(b[p]).sum().item<double>();
  return sum;
}

}  // namespace fedhpc::reference
