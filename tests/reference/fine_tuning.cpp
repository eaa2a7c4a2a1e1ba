#include "reference/fine_tuning.hpp"

#include <limits>

namespace fedhpc::reference {

namespace {

/// The plain mean over clients of their accuracies on their own test samples.
class MeanAccuracy {
 public:
  void add(const Problem& problem, std::int64_t k, const Parameters& model) {
    const Client& tests = problem.tests[static_cast<std::size_t>(k)];
    if (tests.labels.size(0) == 0) return;
    sum_ += correct(problem, model, tests) / static_cast<double>(tests.labels.size(0));
    clients_ += 1;
  }
  double mean() const {
    return clients_ > 0 ? sum_ / clients_ : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double sum_ = 0;
  double clients_ = 0;
};

}  // namespace

FineTunedOutcome fine_tuning_rounds(const Problem& problem, LocalStart start, double mu) {
  FineTunedOutcome result;
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    MeanAccuracy reception;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained u_k = train(problem, k, t, {.pass = 0}, w);
      reception.add(problem, k, u_k.parameters);
      const Trained w_k = train(problem, k, t, {.pass = 1, .mu = mu, .centre = &w},
                                start == LocalStart::FineTuned ? u_k.parameters : w);
      next.add(w_k.parameters, weight_of(problem, k));
      loss.add(u_k);
      loss.add(w_k);
    }
    w = next.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
    result.reception_accuracy.push_back(reception.mean());
  }
  result.outcome.global = flatten(w);
  for (std::size_t k = 0; k < problem.clients.size(); ++k) {
    const auto id = static_cast<std::int64_t>(k);
    result.personal.push_back(
        train(problem, id, problem.rounds, {.purpose = Purpose::Evaluate}, w).parameters);
  }
  return result;
}

}  // namespace fedhpc::reference
