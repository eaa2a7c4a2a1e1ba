#include "reference/server_reference.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

double Server::step_of(double delta, double& m, double& v) const {
  const std::string& rule = settings_.optimizer;
  if (rule == "sgd") return settings_.lr * delta;
  if (rule == "momentum") {
    m = settings_.momentum * m + delta;
    return settings_.lr * m;
  }
  const double square = delta * delta;
  m = settings_.beta1 * m + (1 - settings_.beta1) * delta;
  if (rule == "adagrad") v += square;
  if (rule == "adam") v = settings_.beta2 * v + (1 - settings_.beta2) * square;
  if (rule == "yogi") v -= (1 - settings_.beta2) * (v > square ? square : v < square ? -square : 0);
  return settings_.lr * m / (std::sqrt(v) + settings_.tau);
}

Parameters Server::step(const Problem& problem, const Parameters& w, const Parameters& mean) {
  for (std::size_t i = m_.size(); i < w.size(); ++i) {
    m_.push_back(at::zeros_like(w[i]));
    v_.push_back(at::full_like(w[i], settings_.tau * settings_.tau));
  }
  const std::vector<std::size_t> moving = trainable(problem);
  Parameters next;
  for (std::size_t i = 0; i < w.size(); ++i) {
    next.push_back(mean[i].contiguous().clone());
    if (std::find(moving.begin(), moving.end(), i) == moving.end()) continue;
    const Tensor old = w[i].contiguous();
    for (std::int64_t j = 0; j < old.numel(); ++j) {
      double& out = next[i].data_ptr<double>()[j];
      const double from = old.const_data_ptr<double>()[j];
      out = from + step_of(out - from, m_[i].data_ptr<double>()[j], v_[i].data_ptr<double>()[j]);
    }
  }
  return next;
}

Outcome fedopt(const Problem& problem, const ServerSettings& settings, double mu) {
  Outcome outcome;
  Server server(settings);
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average mean;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained = train(problem, k, t, /*pass=*/0, w, mu);
      mean.add(trained.parameters, weight_of(problem, k));
      loss.add(trained);
    }
    w = server.step(problem, w, mean.mean_or(w));
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = flatten(w);
  return outcome;
}

}  // namespace fedhpc::reference
