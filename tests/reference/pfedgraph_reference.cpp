#include "reference/pfedgraph_reference.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>

namespace fedhpc::reference {

namespace {

/// A participant as the server knows it.
struct Sender {
  std::int64_t client;
  double size;       // p_j, as it is
  Parameters model;  // theta_j
};

Tensor moving_part(const Problem& problem, const Parameters& model) {
  return flatten(chosen(model, trainable(problem)));
}

double cosine(const Tensor& a, const Tensor& b) {
  const double lengths = a.norm().item<double>() * b.norm().item<double>();
  return lengths == 0 ? 0 : a.dot(b).item<double>() / lengths;
}

}  // namespace

std::vector<double> graph_row(const std::vector<double>& cosines, const std::vector<double>& sizes,
                              double alpha) {
  // Stationary where w_j > 0: 2 alpha (w_j - p_j) - c_j + nu = 0.
  const auto weight = [&](std::size_t j, double nu) {
    return std::max(0.0, sizes[j] + (cosines[j] - nu) / (2 * alpha));
  };
  double low = -1 - 4 * alpha;
  double high = 1 + 4 * alpha;
  for (int halving = 0; halving < 200; ++halving) {
    const double nu = (low + high) / 2;
    double sum = 0;
    for (std::size_t j = 0; j < sizes.size(); ++j) sum += weight(j, nu);
    (sum > 1 ? low : high) = nu;
  }
  std::vector<double> row;
  for (std::size_t j = 0; j < sizes.size(); ++j) row.push_back(weight(j, high));
  return row;
}

PFedGraphOutcome pfedgraph(const Problem& problem, const PFedGraphSettings& settings, Link* link) {
  PFedGraphOutcome result;
  const std::size_t n = problem.clients.size();
  result.models.assign(n, problem.initial);
  result.clouds.assign(n, problem.initial);
  std::vector<bool> has_cloud(n, false);
  const Tensor initial = moving_part(problem, problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    RoundLoss loss;
    std::vector<Sender> senders;
    double sizes = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      const auto place = static_cast<std::size_t>(k);
      const Parameters has = received(link, k, result.clouds[place]);
      const Tensor cloud = moving_part(problem, has);
      const ParameterTerm term = [&](const Tensor& theta) {
        return -settings.lambda * theta.dot(cloud) / (theta.norm() * cloud.norm());
      };
      Training training;
      if (has_cloud[place]) training.parameter_term = term;
      const Trained theta = train(problem, k, t, training, has);
      loss.add(theta);
      if (theta.samples > 0) result.models[place] = theta.parameters;
      const double size = weight_of(problem, k);
      if (size == 0) continue;
      senders.push_back({k, size, read(link, k, theta.parameters)});
      sizes += size;
    }
    result.train_loss.push_back(loss.mean());
    result.own_weight.push_back(0);
    result.collaborators.push_back(0);
    std::vector<double> p;
    for (const Sender& sender : senders) p.push_back(sender.size / sizes);
    const auto count = static_cast<double>(senders.size());
    for (std::size_t i = 0; i < senders.size(); ++i) {
      const Tensor moved = moving_part(problem, senders[i].model) - initial;
      std::vector<double> cosines;
      for (std::size_t j = 0; j < senders.size(); ++j) {
        double c = i == j ? 1 : cosine(moved, moving_part(problem, senders[j].model) - initial);
        if (i != j) {
          result.nearest_to_alike = std::min(result.nearest_to_alike, std::abs(c - settings.alike));
        }
        if (c > settings.alike) c = 1;
        cosines.push_back(c);
      }
      const std::vector<double> w = graph_row(cosines, p, settings.alpha);
      Average cloud;
      for (std::size_t j = 0; j < senders.size(); ++j) {
        cloud.add(senders[j].model, w[j]);
        if (i != j && w[j] > 0) result.collaborators.back() += 1 / count;
      }
      result.own_weight.back() += w[i] / count;
      const auto place = static_cast<std::size_t>(senders[i].client);
      result.clouds[place] = cloud.mean_or(problem.initial);
      has_cloud[place] = true;
    }
  }
  return result;
}

}  // namespace fedhpc::reference
