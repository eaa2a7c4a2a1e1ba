#include "reference/averaging.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/TensorOperators.h>

namespace fedhpc::reference {

void Trained::count(double batch_loss, std::size_t batch_size) {
  loss += batch_loss * static_cast<double>(batch_size);
  samples += static_cast<double>(batch_size);
}

Parameters pulled(const Parameters& gradient, const Parameters& parameters,
                  const Parameters& centre, double lambda) {
  Parameters sum;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    sum.push_back(gradient[i].add(parameters[i].sub(centre[i]), lambda));
  }
  return sum;
}

namespace {

/// Which of these parameters have no weight decay.
std::set<std::size_t> undecayed_of(const Problem& problem, const std::vector<std::size_t>& places) {
  std::set<std::size_t> undecayed;
  for (std::size_t i = 0; i < places.size() && !problem.decay_biases; ++i) {
    const std::string& name = problem.layout->fields()[places[i]].name;
    if (name.find("bias") != std::string::npos) undecayed.insert(i);
  }
  return undecayed;
}

/// The gradient of the loss and that of the term at `parameters`.
Parameters with_term(const Parameters& gradient, const Parameters& parameters,
                     const ParameterTerm& term) {
  if (!term) return gradient;
  const Tensor at = flatten(parameters).clone().requires_grad_(true);
  term(at).backward();
  const Parameters of_term = unflatten(at.grad(), parameters);
  Parameters sum;
  for (std::size_t i = 0; i < gradient.size(); ++i) sum.push_back(gradient[i] + of_term[i]);
  return sum;
}

}  // namespace

Trained train(const Problem& problem, std::int64_t k, std::int64_t round, const Training& training,
              const Parameters& start) {
  const Client& client = problem.clients[static_cast<std::size_t>(k)];
  const std::vector<std::size_t> moving = trainable(problem, training.part);
  const Parameters centre = chosen(training.centre != nullptr ? *training.centre : start, moving);
  const Statistics statistics = training.part == Part::Head ? Statistics::Stay : Statistics::Move;
  Trained result;
  for (const Tensor& parameter : start) result.parameters.push_back(parameter.clone());
  Optimizer fresh(problem.optimizer);  // for every client, round and pass
  Optimizer& optimizer = training.optimizer != nullptr ? *training.optimizer : fresh;
  const std::set<std::size_t> undecayed = undecayed_of(problem, moving);
  std::size_t steps = 0;
  for (const auto& batch : batches(problem, k, round, training.pass, training.purpose)) {
    const LossAndGradient step =
        training_loss_(problem, result.parameters, client, batch, statistics, training.term);
    result.count(step.loss, batch.size());
    Parameters parameters = chosen(result.parameters, moving);
    const Parameters gradient = problem.optimizer.clipped(
        with_term(chosen(step.gradient, moving), parameters, training.parameter_term));
    const double rate = training.purpose == Purpose::Evaluate
                            ? 1
                            : rate_of(problem, k, round, training.pass, steps++);
    optimizer.step_(parameters, pulled(gradient, parameters, centre, training.mu), rate, undecayed);
    for (std::size_t i = 0; i < moving.size(); ++i) result.parameters[moving[i]] = parameters[i];
  }
  return result;
}

Trained train(const Problem& problem, std::int64_t k, std::int64_t round, std::int64_t pass,
              const Parameters& start, double mu) {
  return train(problem, k, round, {.pass = pass, .mu = mu}, start);
}

double weight_of(const Problem& problem, std::int64_t k) {
  const auto n_k = static_cast<double>(problem.clients[static_cast<std::size_t>(k)].labels.size(0));
  if (problem.by_batches) {
    return problem.batch_size == 0 ? std::min(n_k, 1.0)
                                   : std::ceil(n_k / static_cast<double>(problem.batch_size));
  }
  return problem.uniform && n_k > 0 ? 1.0 : n_k;
}

void Average::add(const Parameters& parameters, double weight) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor weighted = parameters[i].mul(weight);
    if (i == sum_.size()) {
      sum_.push_back(weighted);
    } else {
      sum_[i] = sum_[i].add(weighted);
    }
  }
  weight_ += weight;
}

Parameters Average::mean_or(const Parameters& otherwise) const {
  if (weight_ == 0) return otherwise;
  Parameters mean;
  for (const Tensor& sum : sum_) mean.push_back(sum.div(weight_));
  return mean;
}

void RoundLoss::add(const Trained& trained) {
  loss_ += trained.loss;
  samples_ += trained.samples;
}

namespace {

/// Standard normals, two of two uniforms.
std::vector<double> normals(const DrawKey& key, std::int64_t count) {
  Draws draws(key);
  const auto uniform = [&] { return static_cast<double>(draws.raw() >> 11) * std::pow(2.0, -53); };
  std::vector<double> values;
  while (static_cast<std::int64_t>(values.size()) < count) {
    const double length = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::acos(-1.0) * uniform();
    values.push_back(length * std::cos(angle));
    values.push_back(length * std::sin(angle));
  }
  values.resize(static_cast<std::size_t>(count));
  return values;
}

/// `w` and a client's change of it, as the server takes it; the first client that weighs anything has
/// the noise of all. Where each client is drawn by itself, the sum is divided by those expected.
Parameters taken(const Problem& problem, const Parameters& w, const Parameters& trained,
                 std::int64_t round, bool first) {
  if (problem.clip == 0) return trained;
  Tensor change = flatten(trained) - flatten(w);
  const double length = std::sqrt(change.square().sum().item<double>());
  change = change * std::min(1.0, problem.clip / (length + 1e-6));
  const DrawnEach drawn = draws_each(problem) ? drawn_each(problem, round) : DrawnEach{};
  if (drawn.stands_in) change.zero_();
  if (first && problem.noise > 0) {
    const std::vector<double> values = normals({.seed = problem.seed,
                                                .purpose = static_cast<Purpose>(17),
                                                .round = static_cast<std::uint64_t>(round)},
                                               change.numel());
    for (std::int64_t i = 0; i < change.numel(); ++i) {
      change[i] += problem.noise * problem.clip * values[static_cast<std::size_t>(i)];
    }
  }
  return unflatten(flatten(w) + drawn.times * change, w);
}

}  // namespace

Outcome averaging_rounds(const Problem& problem, double mu) {
  Outcome outcome;
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const Trained trained = train(problem, k, t, /*pass=*/0, w, mu);
      const double weight = weight_of(problem, k);
      const bool first = next.weight() == 0 && weight > 0;
      next.add(taken(problem, w, trained.parameters, t, first), weight);
      loss.add(trained);
    }
    w = next.mean_or(w);
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = flatten(w);
  return outcome;
}

}  // namespace fedhpc::reference
