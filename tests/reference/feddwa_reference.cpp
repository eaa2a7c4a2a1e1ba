#include "reference/feddwa_reference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace fedhpc::reference {

namespace {

/// A participant as the server knows it.
struct Sender {
  std::int64_t client;
  Parameters model;     // w_k
  Parameters guidance;  // w'_k
};

/// Over what gradients move.
double distance_of(const Problem& problem, const Parameters& a, const Parameters& b) {
  const std::vector<std::size_t> places = trainable(problem);
  return flatten(chosen(a, places)).sub(flatten(chosen(b, places))).norm().item<double>();
}

}  // namespace

std::vector<double> feddwa_weights(const std::vector<double>& distances, std::size_t top_k) {
  constexpr double kLeast = 1e-15;
  std::vector<double> near;
  for (const double distance : distances) near.push_back(std::pow(std::max(distance, kLeast), -2));
  std::vector<double> sorted = near;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const std::size_t kept = std::min(top_k, near.size());
  std::size_t of_last = 0;  // how many as near as the last one kept are
  for (std::size_t n = 0; n < kept; ++n) of_last += sorted[n] == sorted[kept - 1] ? 1 : 0;
  double sum = 0;
  for (double& weight : near) {
    if (weight < sorted[kept - 1]) weight = 0;
    if (weight == sorted[kept - 1]) {
      if (of_last == 0) weight = 0;
      if (of_last > 0) --of_last;
    }
    sum += weight;
  }
  for (double& weight : near) weight /= sum;
  return near;
}

FedDWAOutcome feddwa(const Problem& problem, std::size_t top_k, Link* models, Link* guides) {
  FedDWAOutcome result;
  result.clouds.assign(problem.clients.size(), problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    RoundLoss loss;
    std::vector<Sender> senders;
    for (const std::int64_t k : cohort(problem, t)) {
      const Parameters u_k = received(models, k, result.clouds[static_cast<std::size_t>(k)]);
      const Trained w_k = train(problem, k, t, {.pass = 0}, u_k);
      const Trained guidance = train(problem, k, t, {.pass = 1}, w_k.parameters);
      loss.add(w_k);
      loss.add(guidance);
      const Parameters model = read(models, k, w_k.parameters);
      const Parameters guide = read(guides, k, guidance.parameters);
      if (problem.clients[static_cast<std::size_t>(k)].labels.size(0) == 0) continue;
      senders.push_back({k, model, guide});
    }
    for (std::size_t s = 0; s < senders.size(); ++s) {
      std::vector<double> distances;
      for (const Sender& other : senders) {
        distances.push_back(distance_of(problem, senders[s].guidance, other.model));
      }
      const std::vector<double> p = feddwa_weights(distances, top_k);
      result.least_own_weight = std::min(result.least_own_weight, p[s]);
      Average cloud;
      for (std::size_t j = 0; j < senders.size(); ++j) cloud.add(senders[j].model, p[j]);
      result.clouds[static_cast<std::size_t>(senders[s].client)] = cloud.mean_or(problem.initial);
    }
    result.train_loss.push_back(loss.mean());
  }
  return result;
}

}  // namespace fedhpc::reference
