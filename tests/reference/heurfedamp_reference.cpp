#include "reference/heurfedamp_reference.hpp"

#include <cmath>

namespace fedhpc::reference {

std::vector<double> heurfedamp_weights(std::size_t i, const std::vector<Parameters>& models,
                                       const HeurFedAMPSettings& settings) {
  std::vector<double> xi(models.size(), 0);
  double others = 0;
  for (std::size_t j = 0; j < models.size(); ++j) {
    if (j == i) continue;
    const double cosine = inner_product(models[i], models[j]) /
                          std::sqrt(inner_product(models[i], models[i])) /
                          std::sqrt(inner_product(models[j], models[j]));
    xi[j] = std::exp(settings.sigma * cosine);
    others += xi[j];
  }
  for (double& weight : xi) weight *= (1 - settings.alpha) / others;
  xi[i] = settings.alpha;
  return xi;
}

MessagesOutcome heurfedamp(const Problem& problem, const HeurFedAMPSettings& settings) {
  return message_passing(problem, settings.lambda,
                         [&](std::size_t i, const std::vector<Parameters>& models) {
                           return heurfedamp_weights(i, models, settings);
                         });
}

}  // namespace fedhpc::reference
