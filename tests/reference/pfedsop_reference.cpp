#include "reference/pfedsop_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

namespace {

/// What a client keeps between the rounds it takes part in; nothing before the first.
struct Kept {
  Parameters model;      // x_i
  Parameters evaluated;  // of its last round
  Tensor update;         // [d] Delta_i
  bool has_x = false;    // what all start from, which travels once

  bool is_new() const { return model.empty(); }
};

class PFedSOP {
 public:
  PFedSOP(const Problem& problem, const PFedSOPSettings& settings)
      : problem_(problem),
        settings_(settings),
        places_(trainable(problem)),
        kept_(problem.clients.size()) {}

  PFedSOPOutcome run() {
    result_.global_update = at::zeros_like(trainable_of(problem_.initial));
    for (std::int64_t t = 1; t <= problem_.rounds; ++t) round(t);
    for (const Kept& kept : kept_) {
      result_.personal.push_back(kept.is_new() ? problem_.initial : kept.evaluated);
    }
    return result_;
  }

 private:
  void round(std::int64_t t) {
    Tensor sum = at::zeros_like(result_.global_update);
    double weight = 0;
    RoundLoss loss;
    PFedSOPRound series;
    for (const std::int64_t k : cohort(problem_, t)) {
      Kept& kept = kept_[static_cast<std::size_t>(k)];
      PFedSOPRound of_client;
      Parameters start = kept.is_new() ? problem_.initial : personalised(kept, of_client);  // x_it
      const Trained trained = train(problem_, k, t, {.pass = 0}, start);
      weight += weight_of(problem_, k);
      ++series.participants;
      series.new_participants += kept.has_x ? 0 : 1;
      kept.has_x = true;
      if (trained.samples == 0) continue;
      loss.add(trained);
      append_(series.angles, of_client.angles);
      append_(series.betas, of_client.betas);
      append_(series.step_norms, of_client.step_norms);
      kept.update = trainable_of(start).sub(trainable_of(trained.parameters)).div(problem_.lr);
      for (std::size_t i = 0; i < start.size(); ++i) {
        if (std::ranges::find(places_, i) == places_.end()) start[i] = trained.parameters[i];
      }
      kept.model = settings_.persist == Moment::After ? trained.parameters : start;
      kept.evaluated = settings_.evaluate == Moment::After ? trained.parameters : start;
      sum = sum.add(kept.update, weight_of(problem_, k));
    }
    if (weight > 0) result_.global_update = sum.div(weight);
    result_.train_loss.push_back(loss.mean());
    result_.rounds.push_back(series);
  }

  /// x_it of a client that came before, from x_i, Delta_i and Delta.
  Parameters personalised(const Kept& kept, PFedSOPRound& series) const {
    if (!settings_.personalise) return kept.model;
    const double angle = angle_between(kept.update, result_.global_update);
    const double beta = settings_.beta.value_or(gompertz(angle, settings_.lambda));
    const Tensor update = kept.update.mul(1 - beta).add(result_.global_update, beta);
    const Tensor step = second_order_step(update, settings_.rho).mul(settings_.personal_lr);
    series.angles.push_back(angle);
    series.betas.push_back(beta);
    series.step_norms.push_back(step.norm().item<double>());
    Parameters moved = kept.model;
    const Parameters parts = unflatten(step, chosen(moved, places_));
    for (std::size_t i = 0; i < places_.size(); ++i) {
      moved[places_[i]] = moved[places_[i]].sub(parts[i]);
    }
    return moved;
  }

  Tensor trainable_of(const Parameters& model) const { return flatten(chosen(model, places_)); }

  static void append_(std::vector<double>& all, const std::vector<double>& more) {
    for (const double one : more) all.push_back(one);  // GCC 14 misreads insert()
  }

  const Problem& problem_;
  const PFedSOPSettings& settings_;
  std::vector<std::size_t> places_;  // of the trainable parameters
  std::vector<Kept> kept_;           // [N]
  PFedSOPOutcome result_;
};

}  // namespace

PFedSOPOutcome pfedsop(const Problem& problem, const PFedSOPSettings& settings) {
  return PFedSOP(problem, settings).run();
}

double angle_between(const Tensor& a, const Tensor& b) {
  const double lengths = a.norm().item<double>() * b.norm().item<double>();
  const double cosine = lengths > 0 ? a.dot(b).item<double>() / lengths : 0;
  return std::acos(std::clamp(cosine, -1.0, 1.0));
}

double gompertz(double angle, double lambda) {
  return 1 - std::exp(-std::exp(-lambda * (angle - 1)));
}

Tensor second_order_step(const Tensor& delta, double rho) {
  const Tensor matrix = at::outer(delta, delta).add(at::eye(delta.numel(), delta.options()), rho);
  return at::linalg_solve(matrix, delta);
}

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double place = percent / 100 * static_cast<double>(values.size() - 1);
  const double below = std::floor(place);
  const double lower = values[static_cast<std::size_t>(below)];
  const double upper = values[static_cast<std::size_t>(std::ceil(place))];
  return lower + (place - below) * (upper - lower);
}

}  // namespace fedhpc::reference
