#include "reference/fedcomloc_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "reference/shifted_training.hpp"

namespace fedhpc::reference {

namespace {

/// The places of a model's parameters that are compressed: neither statistics nor norms.
std::vector<std::size_t> compressed(const Problem& problem) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < problem.layout->fields().size(); ++i) {
    const Tag tags = problem.layout->fields()[i].tags;
    if (has(tags, Tag::Trainable) && !has(tags, Tag::Norm)) places.push_back(i);
  }
  return places;
}

/// The k largest magnitudes of all values together; 0 in the place of the others.
void keep_largest_(const std::vector<Tensor>& tensors, double fraction) {
  std::vector<double*> values;
  for (const Tensor& one : tensors) {
    for (std::int64_t i = 0; i < one.numel(); ++i) values.push_back(one.data_ptr<double>() + i);
  }
  const double wanted = std::floor(fraction * static_cast<double>(values.size()) + 0.5);
  std::stable_sort(values.begin(), values.end(),
                   [](const double* a, const double* b) { return std::abs(*a) > std::abs(*b); });
  for (auto i = static_cast<std::size_t>(std::max(1.0, wanted)); i < values.size(); ++i) {
    *values[i] = 0;
  }
}

/// Every value at random to one of two levels, by the Euclidean norm of its tensor.
void quantise_(const std::vector<Tensor>& tensors, std::int64_t levels, std::uint64_t seed) {
  Draws draws({.seed = seed, .purpose = Purpose::Codec});
  const auto s = static_cast<double>(levels);
  for (const Tensor& one : tensors) {
    const double norm = one.norm().item<double>();
    for (std::int64_t i = 0; i < one.numel(); ++i) {
      double& value = one.data_ptr<double>()[i];
      const double u = norm > 0 ? s * std::abs(value) / norm : 0;
      const double level = std::floor(u) + (draws.uniform() < u - std::floor(u) ? 1 : 0);
      value = std::copysign(std::min(level, s) * norm / s, value);
    }
  }
}

}  // namespace

FedComLocOutcome fedcomloc(const Problem& problem, const FedComLocSettings& settings) {
  const std::vector<std::size_t> moving = trainable(problem);
  const auto compress = [&](const std::string& where, const Parameters& model, const DrawKey& key) {
    Parameters result;
    for (const Tensor& one : model) result.push_back(one.clone().contiguous());
    if (settings.compress != where || settings.codec == "dense") return result;
    DrawKey of_codec = key;
    of_codec.seed = problem.seed;
    of_codec.purpose = Purpose::Codec;
    const std::vector<Tensor> tensors = chosen(result, compressed(problem));
    if (settings.codec == "top_k") keep_largest_(tensors, settings.fraction);
    if (settings.codec == "qsgd") quantise_(tensors, settings.levels, Draws(of_codec).raw());
    return result;
  };

  FedComLocOutcome result{
      .outcome = {},
      .controls = std::vector<Parameters>(problem.clients.size(), no_shift(problem)),
      .steps = {},
      .sends = {}};
  Parameters x = problem.initial;
  std::set<std::int64_t> last;  // who has trained in the round before
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    const auto round = static_cast<std::uint64_t>(t);
    const double gamma = problem.optimizer.lr * rate_of(problem, 0, t, 0, 0);
    Draws coin({.seed = problem.seed, .purpose = Purpose::Cohort, .pass = 2, .round = round});
    Problem of_round = problem;
    of_round.local_epochs = 0;
    of_round.local_steps = 1;
    while (!(coin.uniform() < settings.p)) ++of_round.local_steps;
    result.steps.push_back(of_round.local_steps);

    Average average;
    RoundLoss loss;
    std::vector<std::pair<std::int64_t, Parameters>> sent;
    const std::vector<std::int64_t> drawn = cohort(problem, t);
    std::set<std::int64_t> receivers = last;
    receivers.insert(drawn.begin(), drawn.end());
    result.sends.push_back(std::ssize(receivers));
    last.clear();
    for (const std::int64_t k : drawn) {
      const auto client = static_cast<std::uint64_t>(k);
      const Parameters& h = result.controls[static_cast<std::size_t>(k)];
      Trained y;
      for (const Tensor& one : x) y.parameters.push_back(one.clone());
      std::uint64_t step = 0;
      for (const auto& batch : batches(of_round, k, t, /*pass=*/0)) {
        Parameters seen = compress("local", y.parameters,
                                   {.pass = 4, .epoch = step++, .client = client, .round = round});
        const LossAndGradient at = training_loss_(
            problem, seen, problem.clients[static_cast<std::size_t>(k)], batch, Statistics::Move);
        y.count(at.loss, batch.size());
        const Parameters g = problem.optimizer.clipped(chosen(at.gradient, moving));
        const Parameters next = plus(chosen(y.parameters, moving), -gamma, plus(g, -1, h));
        y.parameters = seen;  // whose statistics have moved
        for (std::size_t i = 0; i < moving.size(); ++i) y.parameters[moving[i]] = next[i];
      }
      const Parameters y_hat =
          compress("com", y.parameters, {.pass = 2, .client = client, .round = round});
      average.add(y_hat, weight_of(problem, k));
      loss.add(y);
      if (step > 0) last.insert(k);
      if (step > 0) sent.emplace_back(k, y_hat);
    }
    x = compress("global", average.mean_or(x),
                 {.pass = 3, .client = std::uint64_t{1} << 33, .round = round});
    for (const auto& [k, y_hat] : sent) {
      Parameters& h = result.controls[static_cast<std::size_t>(k)];
      h = plus(h, settings.p / gamma, plus(chosen(x, moving), -1, chosen(y_hat, moving)));
    }
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(x);
  return result;
}

}  // namespace fedhpc::reference
