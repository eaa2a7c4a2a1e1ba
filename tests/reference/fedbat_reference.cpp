#include "reference/fedbat_reference.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

namespace {

/// The places of the weights of linear and convolutional layers among the parameters.
std::vector<std::size_t> weights_of(const Problem& problem) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < problem.initial.size(); ++i) {
    if (problem.initial[i].dim() >= 2) places.push_back(i);
  }
  return places;
}

/// +alpha with probability (m + alpha) / (2 alpha), else -alpha.
Tensor binarised(const Tensor& m, double alpha, Draws& draws) {
  Tensor s = m.clone().contiguous();
  double* values = s.data_ptr<double>();
  for (std::int64_t i = 0; i < s.numel(); ++i) {
    const bool above = draws.uniform() * (2 * alpha) < values[i] + alpha;
    values[i] = above ? alpha : -alpha;
  }
  return s;
}

/// dS/dalpha where S is `s`: the sign of m beyond alpha, else that of s less m / alpha.
Tensor slope(const Tensor& m, const Tensor& s, double alpha) {
  Tensor result = m.clone().contiguous();
  double* values = result.data_ptr<double>();
  const Tensor drawn = s.contiguous();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    const double sign = drawn.const_data_ptr<double>()[i] > 0 ? 1 : -1;
    const double share = alpha > 0 ? values[i] / alpha : 0;
    values[i] = std::abs(values[i]) > alpha ? (values[i] > 0 ? 1.0 : -1.0) : sign - share;
  }
  return result;
}

/// One client's local training.
class LocalTraining {
 public:
  LocalTraining(const Problem& problem, const FedBATSettings& settings, std::int64_t k,
                std::int64_t round, const Parameters& frozen)
      : problem_(problem),
        settings_(settings),
        key_{.seed = problem.seed,
             .purpose = Purpose::Binarise,
             .client = static_cast<std::uint64_t>(k),
             .round = static_cast<std::uint64_t>(round)},
        frozen_(frozen),
        weights_(weights_of(problem)),
        k_(static_cast<std::size_t>(k)),
        batches_(batches(problem, k, round, /*pass=*/0)) {
    for (const Tensor& parameter : frozen) local_.push_back(parameter.clone());
    alpha_0_.assign(weights_.size(), std::clamp(0.01, settings.least_step, settings.most_step));
    a_ = {at::zeros({static_cast<std::int64_t>(weights_.size())}, at::kDouble)};
  }

  /// The update that is sent.
  Parameters train(Trained& trained) {
    Optimizer of_models(problem_.optimizer);
    OptimizerSettings undecayed = problem_.optimizer;
    undecayed.weight_decay = 0;
    Optimizer of_steps(undecayed);
    const auto tau = static_cast<double>(batches_.size());
    const auto warm_up = static_cast<std::size_t>(std::floor(settings_.warm_up * tau));
    for (std::size_t s = 0; s < batches_.size(); ++s) {
      if (s == warm_up && warm_up > 0) start_steps();
      take_step(s, s >= warm_up, of_models, of_steps, trained);
    }
    Parameters update;
    for (std::size_t i = 0; i < local_.size(); ++i) update.push_back(local_[i].sub(frozen_[i]));
    const bool binary = !batches_.empty() && warm_up < batches_.size();
    if (binary) put_binarised(batches_.size(), update, nullptr);
    return update;
  }

 private:
  Tensor m(std::size_t l) const { return local_[weights_[l]].sub(frozen_[weights_[l]]); }
  double free_alpha(std::size_t l) const {
    return alpha_0_[l] *
           std::exp(settings_.step_rate * a_[0][static_cast<std::int64_t>(l)].item<double>());
  }
  double alpha(std::size_t l) const {
    return std::clamp(free_alpha(l), settings_.least_step, settings_.most_step);
  }

  void start_steps() {
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      alpha_0_[l] = m(l).abs().mean().item<double>();
    }
  }

  /// The weights among `parameters` become what is drawn for this step, above `start`.
  void put_binarised(std::size_t step, Parameters& parameters, const Parameters* start) {
    DrawKey key = key_;
    key.epoch = step;
    Draws draws(key);
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      const Tensor s = binarised(m(l), alpha(l), draws);
      parameters[weights_[l]] = start == nullptr ? s : (*start)[weights_[l]].add(s);
    }
  }

  void take_step(std::size_t step, bool binary, Optimizer& of_models, Optimizer& of_steps,
                 Trained& trained) {
    Parameters models;
    for (const Tensor& parameter : local_) models.push_back(parameter.clone());
    if (binary) put_binarised(step, models, &frozen_);
    const Parameters used = models;
    LossAndGradient found =
        training_loss_(problem_, models, problem_.clients[k_], batches_[step], Statistics::Move);
    trained.count(found.loss, batches_[step].size());
    for (std::size_t i = 0; i < local_.size(); ++i) {
      if (!has(problem_.layout->fields()[i].tags, Tag::Trainable)) local_[i] = models[i];
    }
    Parameters of_a{at::zeros_like(a_[0])};
    for (std::size_t l = 0; binary && l < weights_.size(); ++l) {
      Tensor& g = found.gradient[weights_[l]];
      const Tensor s = used[weights_[l]].sub(frozen_[weights_[l]]);
      const bool bounded =
          free_alpha(l) < settings_.least_step || free_alpha(l) > settings_.most_step;
      const double of_alpha = g.mul(slope(m(l), s, alpha(l))).sum().item<double>();
      of_a[0][static_cast<std::int64_t>(l)] =
          bounded ? 0 : of_alpha * settings_.step_rate * free_alpha(l);
      g = g.mul(m(l).abs().le(alpha(l)));
    }
    const std::vector<std::size_t> moving = trainable(problem_);
    Parameters parameters = chosen(local_, moving);
    of_models.step_(parameters, problem_.optimizer.clipped(chosen(found.gradient, moving)));
    for (std::size_t i = 0; i < moving.size(); ++i) local_[moving[i]] = parameters[i];
    if (binary) of_steps.step_(a_, of_a);
  }

  const Problem& problem_;
  const FedBATSettings& settings_;
  DrawKey key_;
  const Parameters& frozen_;
  std::vector<std::size_t> weights_;
  std::size_t k_;
  std::vector<std::vector<std::int64_t>> batches_;
  Parameters local_;  // W + m
  std::vector<double> alpha_0_;
  Parameters a_;  // one tensor [L]
};

/// What the server sends of a mean update.
Parameters quantised(const Problem& problem, std::int64_t round, const Parameters& update) {
  Parameters message = update;
  Draws draws({.seed = problem.seed,
               .purpose = Purpose::Binarise,
               .pass = 1,
               .round = static_cast<std::uint64_t>(round)});
  for (const std::size_t i : weights_of(problem)) {
    message[i] = binarised(update[i], update[i].abs().mean().item<double>(), draws);
  }
  return message;
}

/// Bytes of float64 of what has one bit a weight, one number a tensor, and all else in full.
double binary_bytes(const Problem& problem) {
  double bits = 0;
  double numbers = 0;
  for (std::size_t i = 0; i < problem.initial.size(); ++i) {
    const auto size = static_cast<double>(problem.initial[i].numel());
    const bool binary = problem.initial[i].dim() >= 2;
    bits += binary ? size : 0;
    numbers += binary ? 1 : size;
  }
  return std::ceil(bits / 8) + 8 * numbers;
}

}  // namespace

FedBATOutcome fedbat(const Problem& problem, const FedBATSettings& settings) {
  FedBATOutcome result;
  Parameters w = problem.initial;
  const Tensor flat = flatten(w);
  const double whole = 8 * static_cast<double>(flat.numel());
  result.bytes_up = settings.warm_up == 1 ? whole : binary_bytes(problem);
  result.bytes_down = settings.binary_download ? binary_bytes(problem) : whole;
  Parameters nothing;
  for (const Tensor& parameter : w) nothing.push_back(at::zeros_like(parameter));
  std::vector<std::int64_t> messages(problem.clients.size(), 0);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average mean;
    RoundLoss loss;
    double missed = 0;
    double clients = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      Trained trained;
      LocalTraining client(problem, settings, k, t, w);
      mean.add(client.train(trained), weight_of(problem, k));
      loss.add(trained);
      std::int64_t& has = messages[static_cast<std::size_t>(k)];
      const auto lacks = static_cast<double>(std::max<std::int64_t>(t - 2 - has, 0));
      has = t - 1;
      missed += std::min(lacks * result.bytes_down, whole);
      clients += 1;
    }
    Parameters update = mean.mean_or(nothing);
    if (settings.binary_download) update = quantised(problem, t, update);
    Parameters next;
    for (std::size_t i = 0; i < w.size(); ++i) next.push_back(w[i].add(update[i]));
    w = next;
    result.catch_up.push_back(missed / clients);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  return result;
}

}  // namespace fedhpc::reference
