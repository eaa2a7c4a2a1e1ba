#include "reference/feddecomp_reference.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace fedhpc::reference {

namespace {

/// The factors of every layer, A and B.
using Own = std::vector<Parameters>;

Own first_own(const Problem& problem, const FactorisedModel& model, double range) {
  Own own;
  for (const FactorisedLayer& layer : model.layers()) {
    const double inputs = static_cast<double>(layer.shapes()[0][1]);
    own.push_back({uniform_factor(problem.seed, layer, 0, 0, range / std::sqrt(inputs)),
                   at::zeros(layer.shapes()[1], at::kDouble)});
  }
  return own;
}

/// a + b - c, tensor by tensor.
Parameters moved(const Parameters& a, const Parameters& b, const Parameters& c) {
  Parameters sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + (b[i] - c[i]));
  return sum;
}

/// Both trainings of a client.
struct ClientTraining {
  const Problem& problem;
  const FedDecompSettings& settings;
  const FactorisedModel& model;
  std::int64_t k;
  std::int64_t round;
  RoundLoss& loss;

  void personal_(const Parameters& sigma, Own& own) const {
    const FactorPoint point{model, sigma, std::vector<Parameters>(own.size())};
    Optimizer optimizer(problem.optimizer);
    Parameters u = model.row(own, sigma);
    for (std::int64_t pass = 0; pass < settings.personal_passes; ++pass) {
      const Trained trained = train_factors(problem, k, round, point, u, pass, &optimizer);
      loss.add(trained);
      u = trained.parameters;
    }
    for (std::size_t l = 0; l < own.size(); ++l) own[l] = model.factors_in(u, l);
  }

  Parameters shared(const Parameters& start) const {
    Optimizer optimizer(problem.optimizer);
    Parameters w = start;
    for (std::int64_t n = 0; n < settings.shared_passes; ++n) {
      const Trained trained = train(
          problem, k, round, {.pass = settings.personal_passes + n, .optimizer = &optimizer}, w);
      loss.add(trained);
      w = trained.parameters;
    }
    return w;
  }
};

}  // namespace

FedDecompOutcome feddecomp(const Problem& problem, const FedDecompSettings& settings) {
  FactorisationSettings factorisation = settings.factorisation;
  factorisation.passed = {.without = Tag::Trainable | Tag::Buffer};
  const FactorisedModel model(problem, factorisation);
  FedDecompOutcome result;
  Parameters sigma = problem.initial;
  std::vector<Own> own(problem.clients.size(), first_own(problem, model, settings.range));
  const auto model_of = [&](const Own& factors) {
    return model.compose(sigma, std::vector<Parameters>(factors.size()), model.row(factors, sigma));
  };
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const ClientTraining client{problem, settings, model, k, t, loss};
      Own& own_k = own[static_cast<std::size_t>(k)];
      client.personal_(sigma, own_k);
      const Parameters start = model_of(own_k);
      next.add(moved(sigma, client.shared(start), start), weight_of(problem, k));
    }
    sigma = next.mean_or(sigma);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(sigma);
  for (const Own& own_k : own) result.personal.push_back(model_of(own_k));
  return result;
}

}  // namespace fedhpc::reference
