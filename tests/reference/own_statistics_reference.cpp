#include "reference/own_statistics_reference.hpp"

#include <functional>

#include "reference/fedrep_reference.hpp"

namespace fedhpc::reference {

namespace {

/// The model with the running statistics of another one.
Parameters with_statistics_of(const Problem& problem, const Parameters& model,
                              const Parameters& other) {
  Parameters mixed = other;
  for (const std::size_t place : trainable(problem)) mixed[place] = model[place];
  return mixed;
}

/// Trains the common model at a client that has `mine` as its last one.
using ClientWork = std::function<Parameters(std::int64_t k, std::int64_t t,
                                            const Parameters& received, RoundLoss& loss)>;

OwnStatisticsOutcome rounds(const Problem& problem, const ClientWork& work) {
  OwnStatisticsOutcome result;
  Parameters w = problem.initial;
  std::vector<Parameters> mine(problem.clients.size(), problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      Parameters& w_k = mine[static_cast<std::size_t>(k)];
      w_k = work(k, t, with_statistics_of(problem, w, w_k), loss);
      next.add(w_k, weight_of(problem, k));
    }
    w = with_statistics_of(problem, next.mean_or(w), problem.initial);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  for (const Parameters& w_k : mine) {
    result.received.push_back(with_statistics_of(problem, w, w_k));
  }
  return result;
}

}  // namespace

OwnStatisticsOutcome fedavg_with_own_statistics(const Problem& problem) {
  return rounds(problem, [&](std::int64_t k, std::int64_t t, const Parameters& w, RoundLoss& loss) {
    const Trained trained = train(problem, k, t, {}, w);
    loss.add(trained);
    return trained.parameters;
  });
}

OwnStatisticsOutcome ditto_with_own_statistics(const Problem& problem, double mu) {
  std::vector<Parameters> personal(problem.clients.size(), problem.initial);
  OwnStatisticsOutcome result =
      rounds(problem, [&](std::int64_t k, std::int64_t t, const Parameters& w, RoundLoss& loss) {
        Parameters& v = personal[static_cast<std::size_t>(k)];
        const Trained common = train(problem, k, t, {}, w);
        const Trained own = train(problem, k, t, {.mu = mu, .centre = &w}, v);
        v = own.parameters;
        loss.add(common);
        loss.add(own);
        return common.parameters;
      });
  result.personal = personal;
  return result;
}

OwnStatisticsOutcome fedrep_with_own_statistics(const Problem& problem) {
  std::vector<Parameters> heads(problem.clients.size(), problem.initial);
  OwnStatisticsOutcome result =
      rounds(problem, [&](std::int64_t k, std::int64_t t, const Parameters& phi, RoundLoss& loss) {
        Parameters& h = heads[static_cast<std::size_t>(k)];
        const Trained head =
            train(problem, k, t, {.pass = 0, .part = Part::Head}, with_head_of(problem, phi, h));
        const Trained body = train(problem, k, t, {.pass = 1, .part = Part::Body}, head.parameters);
        h = head.parameters;
        loss.add(head);
        loss.add(body);
        return body.parameters;
      });
  for (std::size_t k = 0; k < heads.size(); ++k) {
    result.personal.push_back(with_head_of(problem, result.received[k], heads[k]));
  }
  return result;
}

}  // namespace fedhpc::reference
