#include "reference/fedmud_reference.hpp"

#include <algorithm>

#include <ATen/ops/eye.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

namespace {

enum class Start { OfNoUpdate, OfRandomFactors };

/// What a layer starts from with `round` rounds done.
DrawnFactors layer_start(const Problem& problem, const FedMUDSettings& settings,
                         const FactorisedLayer& layer, std::int64_t round, Start start) {
  DrawnFactors drawn = uniform_factors(problem.seed, layer, round, settings.range);
  for (Tensor& constant : drawn.constants) {
    if (settings.identity) constant = at::eye(constant.size(0), constant.size(1), at::kDouble);
  }
  if (start == Start::OfRandomFactors) return drawn;
  // One factor of every product is enough: U V^T with V = 0, or a constant with a factor of 0.
  for (std::size_t f = drawn.constants.empty() ? 1 : 0; f < drawn.factors.size(); ++f) {
    drawn.factors[f] = at::zeros_like(drawn.factors[f]);
  }
  return drawn;
}

struct State {
  FactorPoint point;
  Parameters u;
};

/// Constants and factors anew; what passes through stays that of `model`.
void draw_(State& state, const Problem& problem, const FedMUDSettings& settings, std::int64_t round,
           Start start, const Parameters& model) {
  std::vector<Parameters> factors;
  state.point.constants.clear();
  for (const FactorisedLayer& layer : state.point.model.layers()) {
    const DrawnFactors drawn = layer_start(problem, settings, layer, round, start);
    state.point.constants.push_back(drawn.constants);
    factors.push_back(drawn.factors);
  }
  state.u = state.point.model.row(factors, model);
}

/// Whether clients add the update to W at the start of this round.
bool is_push(const FedMUDSettings& settings, std::int64_t round) {
  return round > 1 && (round - 1) % settings.reset_interval == 0;
}

/// Numbers that a participant lacks, in the mean over those that train: for every push it missed an
/// update and a seed, or the weights if these are fewer.
class CatchUp {
 public:
  CatchUp(const Problem& problem, const FedMUDSettings& settings, const FactorisedModel& model)
      : problem_(problem),
        settings_(settings),
        update_(static_cast<double>(model.factor_size()) + 1),
        weights_(static_cast<double>(model.weights_factored())),
        last_(problem.clients.size(), 0) {}

  double of_round(std::int64_t round) {
    double sum = 0;
    double clients = 0;
    for (const std::int64_t k : cohort(problem_, round)) {
      std::int64_t& last = last_[static_cast<std::size_t>(k)];
      double missed = 0;
      for (std::int64_t t = last + 1; t < round; ++t) missed += is_push(settings_, t) ? 1 : 0;
      sum += std::min(missed * update_, weights_);
      clients += 1;
      last = round;
    }
    return sum / clients;
  }

 private:
  const Problem& problem_;
  const FedMUDSettings& settings_;
  double update_;
  double weights_;
  std::vector<std::int64_t> last_;  // [N] round a client last took part in
};

}  // namespace

FactorOutcome fedmud(const Problem& problem, const FedMUDSettings& settings) {
  const FactorisedModel model(problem, settings.factorisation);
  State state{.point = {model, problem.initial, {}}, .u = {}};
  if (settings.start_from_factors) {
    state.point.frozen = model.without_factorised(problem.initial);
  }
  draw_(state, problem, settings, 0,
        settings.start_from_factors ? Start::OfRandomFactors : Start::OfNoUpdate, problem.initial);
  CatchUp catch_up(problem, settings, model);
  FactorOutcome result = outcome_of(model);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    if (is_push(settings, t)) {
      state.point.frozen = state.point.at(state.u);
      draw_(state, problem, settings, t - 1, Start::OfNoUpdate, state.point.frozen);
    }
    result.catch_up_numbers.push_back(catch_up.of_round(t));
    state.u = averaging_factors(problem, t, state.point, state.u, result);
  }
  result.factors = state.u;
  result.outcome.global = flatten(state.point.at(state.u));
  return result;
}

}  // namespace fedhpc::reference
