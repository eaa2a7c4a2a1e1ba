#include "reference/tdpfed_reference.hpp"

#include <algorithm>

#include <ATen/ops/linalg_lstsq.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "reference/factor_training.hpp"

namespace fedhpc::reference {

namespace {

/// `factors` after sweeps of least squares, one of them after the other: the tensor is linear in
/// each, with the columns that its unit vectors give.
Parameters after_least_squares(const FactorisedLayer& layer, Parameters factors,
                               const Tensor& weights, std::int64_t sweeps) {
  for (std::int64_t sweep = 0; sweep < sweeps; ++sweep) {
    for (Tensor& factor : factors) {
      const Tensor shape = factor;
      std::vector<Tensor> columns;
      for (std::int64_t j = 0; j < shape.numel(); ++j) {
        factor = at::zeros({shape.numel()}, at::kDouble);
        factor[j].fill_(1);
        factor = factor.view(shape.sizes());
        columns.push_back(layer.expand({}, factors).flatten());
      }
      const Tensor solution = std::get<0>(
          at::linalg_lstsq(at::stack(columns, 1), weights.reshape({-1, 1}), {}, "gelsd"));
      factor = solution.view(shape.sizes());
    }
  }
  return factors;
}

/// The model as its CP decompositions and what is left in full.
class Decomposition {
 public:
  Decomposition(const Problem& problem, const TDPFedSettings& settings)
      : settings_(settings),
        model_(problem, settings.factorisation),
        point_{model_, model_.without_factorised(problem.initial),
               std::vector<Parameters>(model_.layers().size())} {}

  Parameters initial(const Problem& problem) const {
    return model_.row(model_.normal_factors(problem.seed), problem.initial);
  }

  Parameters compose(const Parameters& factors) const { return point_.at(factors); }

  /// The factors nearest to a model: of a matrix by a truncated SVD, of a kernel from those before.
  Parameters decompose(const Parameters& model, const Parameters& before) const {
    std::vector<Parameters> factors;
    for (std::size_t l = 0; l < model_.layers().size(); ++l) {
      const FactorisedLayer& layer = model_.layers()[l];
      const Tensor& weights = model[layer.place()];
      if (weights.dim() == 2) {
        factors.push_back(layer.fit(weights));
        std::reverse(factors.back().begin(), factors.back().end());  // A1 is of the inputs
      } else {
        factors.push_back(after_least_squares(layer, model_.factors_in(before, l), weights,
                                              settings_.fit_sweeps));
      }
    }
    return model_.row(factors, model);
  }

  /// `factors` with the running statistics of a model.
  Parameters with_statistics(Parameters factors, const Parameters& model) const {
    model_.take_buffers_(factors, model);
    return factors;
  }

  /// The gradient of lambda/2 ||theta - [[A]]||^2 in the factors.
  Parameters gradient(const Parameters& factors, const Parameters& theta) const {
    Parameters leaves;
    for (const Tensor& factor : factors) {
      leaves.push_back(factor.detach().clone().requires_grad_(true));
    }
    const Tensor error = flatten(theta).sub(flatten(compose(leaves)));
    error.square().sum().mul(settings_.lambda / 2).backward();
    Parameters gradient;
    for (const Tensor& leaf : leaves) gradient.push_back(leaf.grad());
    return gradient;
  }

 private:
  const TDPFedSettings& settings_;
  FactorisedModel model_;
  FactorPoint point_;
};

}  // namespace

PersonalOutcome tdpfed(const Problem& problem, const TDPFedSettings& settings) {
  const Decomposition cp(problem, settings);
  const PersonalSteps steps{
      {.name = "nesterov", .lr = settings.personal_lr, .momentum = settings.momentum},
      settings.lambda,
      settings.inner_steps};
  PersonalOutcome result(problem.clients.size());
  Parameters factors = cp.initial(problem);
  Parameters global = cp.compose(factors);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    const Parameters start = settings.send_tensor ? global : cp.compose(factors);
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const auto place = static_cast<std::size_t>(k);
      Trained local{.parameters = factors};
      Parameters& factors_k = local.parameters;
      Parameters theta = start;
      Optimizer adam({.name = "adam", .lr = problem.lr});  // keeps its moments over local steps
      for (const auto& batch : batches(problem, k, t, /*pass=*/0)) {
        const Parameters centre = cp.compose(factors_k);
        local.count(steps.take_(problem, theta, centre, problem.clients[place], batch),
                    batch.size());
        if (settings.fit) factors_k = cp.decompose(theta, factors_k);
        for (std::int64_t i = 0; i < settings.factor_steps && !settings.fit; ++i) {
          adam.step_(factors_k, cp.gradient(factors_k, theta));
        }
        factors_k = cp.with_statistics(factors_k, theta);
      }
      next.add(settings.act ? cp.compose(factors_k) : factors_k, weight_of(problem, k));
      loss.add(local);
      if (local.samples == 0) continue;
      result.personal[place] = theta;
      result.local[place] = cp.compose(factors_k);
    }
    result.outcome.train_loss.push_back(loss.mean());
    if (next.weight() == 0) continue;
    const Parameters mean = next.mean_or({});
    if (settings.act) {
      global = with_statistics(problem, mixed(cp.compose(factors), mean, settings.beta), mean);
      factors = cp.decompose(global, factors);
    } else {
      factors = cp.with_statistics(mixed(factors, mean, settings.beta), cp.compose(mean));
      global = cp.compose(factors);
    }
  }
  result.outcome.global = flatten(global);
  result.complete(settings.send_tensor ? global : cp.compose(factors));
  return result;
}

}  // namespace fedhpc::reference
