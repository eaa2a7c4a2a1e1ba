#include "reference/apfl_reference.hpp"

#include <algorithm>

#include "reference/personal.hpp"

namespace fedhpc::reference {

namespace {

/// <v - w, gradient> over what gradients move.
double slope(const Problem& problem, const Parameters& v, const Parameters& w,
             const Parameters& gradient) {
  double sum = 0;
  for (const std::size_t i : trainable(problem)) {
    sum += v[i].sub(w[i]).mul(gradient[i]).sum().item<double>();
  }
  return sum;
}

/// Moves what gradients move of `model` by one step.
void descend_(const Problem& problem, Optimizer& optimizer, Parameters& model,
              const Parameters& gradient, double rate) {
  const std::vector<std::size_t> moving = trainable(problem);
  Parameters parameters = chosen(model, moving);
  optimizer.step_(parameters, problem.optimizer.clipped(chosen(gradient, moving)), rate);
  for (std::size_t i = 0; i < moving.size(); ++i) model[moving[i]] = parameters[i];
}

}  // namespace

APFLOutcome apfl(const Problem& problem, double alpha, bool adaptive) {
  APFLOutcome result;
  result.alpha.assign(problem.clients.size(), alpha);
  std::vector<Parameters> own(problem.clients.size(), problem.initial);
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const auto place = static_cast<std::size_t>(k);
      const Client& client = problem.clients[place];
      double& alpha_k = result.alpha[place];
      Trained local;
      for (const Tensor& tensor : w) local.parameters.push_back(tensor.clone());
      Parameters& w_k = local.parameters;
      Parameters& v_k = own[place];
      Optimizer of_w(problem.optimizer);
      Optimizer of_v(problem.optimizer);
      std::size_t step = 0;
      for (const auto& batch : batches(problem, k, t, /*pass=*/0)) {
        const double rate = rate_of(problem, k, t, /*pass=*/0, step);
        Parameters mixture = mixed(w_k, v_k, alpha_k);
        const LossAndGradient of_mixture =
            training_loss_(problem, mixture, client, batch, Statistics::Stay);
        const LossAndGradient of_local =
            training_loss_(problem, w_k, client, batch, Statistics::Move);
        local.count(of_local.loss, batch.size());
        double alpha_next = alpha_k;
        if (adaptive && step == 0) {
          alpha_next -= problem.lr * rate * slope(problem, v_k, w_k, of_mixture.gradient);
        }
        Parameters of_v_k;
        for (const Tensor& gradient : of_mixture.gradient) {
          of_v_k.push_back(gradient.mul(alpha_k));
        }
        descend_(problem, of_w, w_k, of_local.gradient, rate);
        descend_(problem, of_v, v_k, of_v_k, rate);
        alpha_k = std::clamp(alpha_next, 0.0, 1.0);
        ++step;
      }
      for (std::size_t i = 0; i < w_k.size() && local.samples > 0; ++i) {
        if (has(problem.layout->fields()[i].tags, Tag::Buffer)) v_k[i] = w_k[i];
      }
      next.add(w_k, weight_of(problem, k));
      loss.add(local);
    }
    w = next.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  for (std::size_t k = 0; k < own.size(); ++k) {
    result.personal.push_back(mixed(w, own[k], result.alpha[k]));
  }
  return result;
}

}  // namespace fedhpc::reference
