#include "reference/personal.hpp"

namespace fedhpc::reference {

void PersonalOutcome::complete(const Parameters& start) {
  for (std::size_t k = 0; k < personal.size(); ++k) {
    if (!personal[k].empty()) continue;
    personal[k] = start;
    local[k] = start;
  }
}

Parameters mixed(const Parameters& from, const Parameters& to, double beta) {
  Parameters sum;
  for (std::size_t i = 0; i < from.size(); ++i) {
    sum.push_back(from[i].mul(1 - beta).add(to[i], beta));
  }
  return sum;
}

double PersonalSteps::take_(const Problem& problem, Parameters& theta, const Parameters& centre,
                            const Client& client, const std::vector<std::int64_t>& batch) const {
  Optimizer rule(optimizer);
  double first_loss = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const LossAndGradient step =
        training_loss_(problem, theta, client, batch, i == 0 ? Statistics::Move : Statistics::Stay);
    if (i == 0) first_loss = step.loss;
    Parameters next = theta;
    rule.step_(next, pulled(optimizer.clipped(step.gradient), theta, centre, lambda));
    theta = with_statistics(problem, next, theta);
  }
  return first_loss;
}

}  // namespace fedhpc::reference
