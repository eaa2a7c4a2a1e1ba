#include "reference/tdpfed_reference.hpp"

#include <cmath>
#include <tuple>

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc::reference {

namespace {

/// What stands for a network's parameters, in order: A1 [in, R] and A2 [out, R] for the weight
/// A2 A1^T of a compressed layer; a bias or a weight of rank 0 for itself.
using Factors = std::vector<Tensor>;

bool is_weight(std::size_t parameter) { return parameter % 2 == 0; }

struct Factorisation {
  const std::vector<std::int64_t>& ranks;

  std::int64_t rank(std::size_t parameter) const {
    return is_weight(parameter) ? ranks.at(parameter / 2) : 0;
  }

  Factors initial(const Problem& problem) const {
    Factors factors;
    for (std::size_t i = 0; i < problem.initial.size(); ++i) {
      const Tensor& start = problem.initial[i];
      if (rank(i) == 0) {
        factors.push_back(start.clone());
        continue;
      }
      // A product of two factors with this deviation has the variance v = 2 / fan_in.
      const double v = 2.0 / static_cast<double>(start.size(1));
      const double sigma = std::pow(v / static_cast<double>(rank(i)), 1.0 / 4);
      for (const std::int64_t rows : {start.size(1), start.size(0)}) {
        Draws draws({.seed = problem.seed, .purpose = Purpose::Factors, .client = factors.size()});
        const Tensor factor = at::empty({rows, rank(i)}, start.options());
        double* const entry = factor.data_ptr<double>();
        for (std::int64_t j = 0; j < factor.numel(); ++j) entry[j] = sigma * draws.normal();
        factors.push_back(factor);
      }
    }
    return factors;
  }

  Parameters compose(const Factors& factors) const {
    Parameters parameters;
    for (std::size_t next = 0; next < factors.size(); ++next) {
      if (rank(parameters.size()) == 0) {
        parameters.push_back(factors[next]);
      } else {
        parameters.push_back(at::matmul(factors[next + 1], factors[next].t()));
        ++next;
      }
    }
    return parameters;
  }

  /// The nearest factors: U sqrt(S) and V sqrt(S) of weight^T = U S V^T, truncated.
  Factors decompose(const Parameters& parameters) const {
    Factors factors;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (rank(i) == 0) {
        factors.push_back(parameters[i]);
        continue;
      }
      const auto [u, s, vt] = at::linalg_svd(parameters[i].t(), /*full_matrices=*/false);
      const Tensor root = s.narrow(0, 0, rank(i)).sqrt();
      factors.push_back(u.narrow(1, 0, rank(i)).mul(root));
      factors.push_back(vt.t().narrow(1, 0, rank(i)).mul(root));
    }
    return factors;
  }

  /// The gradient of lambda/2 ||theta - [[A]]||^2 in the factors.
  Factors gradient(const Factors& factors, const Parameters& theta, double lambda) const {
    Factors leaves;
    for (const Tensor& factor : factors) {
      leaves.push_back(factor.detach().clone().requires_grad_(true));
    }
    const Tensor error = flatten(theta).sub(flatten(compose(leaves)));
    error.square().sum().mul(lambda / 2).backward();
    Factors gradient;
    for (const Tensor& leaf : leaves) gradient.push_back(leaf.grad());
    return gradient;
  }
};

}  // namespace

PersonalOutcome tdpfed(const Problem& problem, const TDPFedSettings& settings) {
  const Factorisation cp{settings.ranks};
  const PersonalSteps steps{
      {.name = "nesterov", .lr = settings.personal_lr, .momentum = settings.momentum},
      settings.lambda,
      settings.inner_steps};
  PersonalOutcome result(problem.clients.size());
  Factors factors = cp.initial(problem);
  Parameters global = cp.compose(factors);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    const Parameters start = settings.send_tensor ? global : cp.compose(factors);
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      const auto place = static_cast<std::size_t>(k);
      Trained local{.parameters = factors};
      Factors& factors_k = local.parameters;
      Parameters theta = start;
      Optimizer adam({.name = "adam", .lr = problem.lr});  // keeps its moments over local steps
      for (const auto& batch : batches(problem, k, t, /*pass=*/0)) {
        const Parameters centre = cp.compose(factors_k);
        local.count(steps.take_(theta, centre, problem.clients[place], batch), batch.size());
        if (settings.fit) factors_k = cp.decompose(theta);
        for (std::int64_t i = 0; i < settings.factor_steps && !settings.fit; ++i) {
          adam.step_(factors_k, cp.gradient(factors_k, theta, settings.lambda));
        }
      }
      next.add(settings.act ? cp.compose(factors_k) : factors_k, weight_of(problem, k));
      loss.add(local);
      if (local.samples == 0) continue;
      result.personal[place] = theta;
      result.local[place] = cp.compose(factors_k);
    }
    result.outcome.train_loss.push_back(loss.mean());
    if (next.weight() == 0) continue;
    if (settings.act) {
      global = mixed(cp.compose(factors), next.mean_or({}), settings.beta);
      factors = cp.decompose(global);
    } else {
      factors = mixed(factors, next.mean_or({}), settings.beta);
      global = cp.compose(factors);
    }
  }
  result.outcome.global = flatten(global);
  result.complete(settings.send_tensor ? global : cp.compose(factors));
  return result;
}

}  // namespace fedhpc::reference
