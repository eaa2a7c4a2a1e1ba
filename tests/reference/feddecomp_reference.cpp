#include "reference/feddecomp_reference.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "reference/shifted_training.hpp"

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

FedDecompOutcome feddecomp(const Problem& problem, const FedDecompSettings& settings, Link* link) {
  FactorisationSettings factorisation = settings.factorisation;
  factorisation.passed = {.without = Tag::Trainable | Tag::Buffer};
  const FactorisedModel model(problem, factorisation);
  FedDecompOutcome result;
  Parameters sigma = problem.initial;
  std::vector<Own> own(problem.clients.size(), first_own(problem, model, settings.range));
  const auto model_of = [&](const Parameters& shared, const Own& factors) {
    return model.compose(shared, std::vector<Parameters>(factors.size()),
                         model.row(factors, shared));
  };
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const ClientTraining client{problem, settings, model, k, t, loss};
      Own& own_k = own[static_cast<std::size_t>(k)];
      const Parameters has = received(link, k, sigma);
      client.personal_(has, own_k);
      const Parameters start = model_of(has, own_k);
      const Parameters change = read(link, k, plus(client.shared(start), -1, start));
      next.add(plus(sigma, 1, change), weight_of(problem, k));
    }
    sigma = next.mean_or(sigma);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(sigma);
  for (const Own& own_k : own) result.personal.push_back(model_of(sigma, own_k));
  return result;
}

}  // namespace fedhpc::reference
