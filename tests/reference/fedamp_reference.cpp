#include "reference/fedamp_reference.hpp"

#include <cmath>

namespace fedhpc::reference {

std::vector<double> fedamp_weights(std::size_t i, const std::vector<Parameters>& models,
                                   const FedAMPSettings& settings) {
  std::vector<double> xi(models.size(), 0);
  double others = 0;
  for (std::size_t j = 0; j < models.size(); ++j) {
    if (j == i) continue;
    Parameters difference;
    for (std::size_t p = 0; p < models[i].size(); ++p) {
      difference.push_back(models[i][p].sub(models[j][p]));
    }
    const double distance = inner_product(difference, difference);
    xi[j] = settings.alpha_k / settings.sigma * std::exp(-distance / settings.sigma);
    others += xi[j];
  }
  if (others > 1 && !settings.any_own_weight) {
    for (double& weight : xi) weight /= others;
    others = 1;
  }
  xi[i] = 1 - others;
  return xi;
}

MessagesOutcome fedamp(const Problem& problem, const FedAMPSettings& settings, Link* link) {
  return message_passing(
      problem, settings.lambda,
      [&](std::size_t i, const std::vector<Parameters>& models) {
        return fedamp_weights(i, models, settings);
      },
      link);
}

}  // namespace fedhpc::reference
