#include "reference/fedselect_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

namespace {

/// m a + (1 - m) b, of masks of zeros and ones.
Parameters joined(const Parameters& m, const Parameters& a, const Parameters& b) {
  Parameters result;
  for (std::size_t i = 0; i < m.size(); ++i) result.push_back(at::where(m[i].eq(1), a[i], b[i]));
  return result;
}

Parameters opposite(const Parameters& m) {
  Parameters result;
  for (const Tensor& mask : m) result.push_back(1 - mask);
  return result;
}

double sum_of(const Problem& problem, const Parameters& m) {
  double sum = 0;
  for (const std::size_t i : trainable(problem)) sum += m[i].sum().item<double>();
  return sum;
}

/// One training in which the frozen parameters are put back after every step.
void train_(const Problem& problem, std::int64_t k, std::int64_t round, std::int64_t pass,
            const Parameters& frozen, Statistics statistics, Trained& model) {
  const std::vector<std::size_t> moving = trainable(problem);
  Optimizer optimizer(problem.optimizer);
  std::size_t steps = 0;
  for (const auto& batch : batches(problem, k, round, pass)) {
    const LossAndGradient step = training_loss_(
        problem, model.parameters, problem.clients[static_cast<std::size_t>(k)], batch, statistics);
    model.count(step.loss, batch.size());
    Parameters after = chosen(model.parameters, moving);
    optimizer.step_(after, problem.optimizer.clipped(chosen(step.gradient, moving)),
                    rate_of(problem, k, round, pass, steps++));
    for (std::size_t i = 0; i < moving.size(); ++i) {
      Tensor& parameter = model.parameters[moving[i]];
      parameter = at::where(frozen[moving[i]].eq(1), parameter, after[i]);
    }
  }
}

/// The mask of one tensor with the columns that moved most among those still shared.
Tensor selected(const Tensor& mask, const Tensor& change, const Selection& selection) {
  Tensor result = mask.clone().contiguous();
  const Tensor magnitude = change.abs().contiguous();
  double* m = result.data_ptr<double>();
  const double* moved = magnitude.const_data_ptr<double>();
  std::vector<std::int64_t> shared;
  for (std::int64_t i = 0; i < mask.numel(); ++i) {
    if (m[i] == 0) shared.push_back(i);
  }
  std::stable_sort(shared.begin(), shared.end(),
                   [&](std::int64_t i, std::int64_t j) { return moved[i] > moved[j]; });
  const auto columns = static_cast<double>(mask.numel());
  const double personal = columns - static_cast<double>(shared.size());
  const double wanted = std::floor(selection.rate * static_cast<double>(shared.size()) + 0.5);
  const double room = std::max(0.0, std::floor(selection.limit * columns + 0.5) - personal);
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(std::min(wanted, room)); ++n) {
    m[shared[static_cast<std::size_t>(n)]] = 1;
  }
  return result;
}

}  // namespace

FedSelectOutcome fedselect(const Problem& problem, const Selection& selection) {
  FedSelectOutcome result;
  Parameters theta = problem.initial;
  Parameters none;
  Parameters ones;
  for (const Tensor& tensor : theta) {
    none.push_back(at::zeros_like(tensor));
    ones.push_back(at::ones_like(tensor));
  }
  const double all = sum_of(problem, ones);
  std::vector<Parameters>& m = result.masks;
  m.assign(problem.clients.size(), none);
  std::vector<Parameters> v(problem.clients.size(), theta);
  std::vector<std::int64_t> turns(problem.clients.size(), 0);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Parameters sums = none;
    Parameters weights = none;
    RoundLoss loss;
    double share = 0;
    double trained = 0;
    for (const std::int64_t k : cohort(problem, t)) {
      const auto place = static_cast<std::size_t>(k);
      const Parameters start = joined(m[place], v[place], theta);
      Trained model;
      for (const Tensor& tensor : start) model.parameters.push_back(tensor.clone());
      for (std::int64_t a = 0; a < selection.alternations; ++a) {
        const std::int64_t pass = a * (1 + selection.personal_passes);
        for (std::int64_t n = 1; n <= selection.personal_passes; ++n) {
          if (sum_of(problem, m[place]) == 0) continue;
          train_(problem, k, t, pass + n, opposite(m[place]), Statistics::Stay, model);
        }
        train_(problem, k, t, pass, m[place], Statistics::Move, model);
      }
      const Parameters& end = model.parameters;
      const double weight = weight_of(problem, k);
      for (std::size_t i = 0; i < end.size(); ++i) {
        sums[i] = sums[i] + weight * (1 - m[place][i]) * end[i];
        weights[i] = weights[i] + weight * (1 - m[place][i]);
      }
      loss.add(model);
      if (model.samples == 0) continue;
      v[place] = end;
      if (++turns[place] % selection.every == 0) {
        for (std::size_t i = 0; i < end.size(); ++i) {
          if (problem.layout->fields()[i].name.find("weight") == std::string::npos) continue;
          m[place][i] = selected(m[place][i], end[i] - start[i], selection);
        }
      }
      share += sum_of(problem, m[place]) / all;
      trained += 1;
    }
    for (std::size_t i = 0; i < theta.size(); ++i) {
      theta[i] = at::where(weights[i].eq(0), theta[i], sums[i] / weights[i]);
    }
    result.outcome.train_loss.push_back(loss.mean());
    result.personal_share.push_back(share / trained);
  }
  result.outcome.global = flatten(theta);
  for (std::size_t k = 0; k < v.size(); ++k) result.personal.push_back(joined(m[k], v[k], theta));
  return result;
}

}  // namespace fedhpc::reference
