#include "reference/simnet_reference.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "reference/fused_lasso.hpp"

namespace fedhpc::reference {

namespace {

using Personal = SimNetSettings::Personal;

constexpr double kSamePlateau = 1e-10;  // relative to the largest entry

double relative(const Tensor& difference, const Tensor& a, const Tensor& b) {
  const double length = difference.norm().item<double>();
  return length == 0 ? 0 : length / std::max(a.norm().item<double>(), b.norm().item<double>());
}

class SimNet {
 public:
  SimNet(const Problem& problem, const SimNetSettings& settings)
      : problem_(problem),
        settings_(settings),
        eta_(settings.personal_lr.value_or(problem.lr)),
        own_(columns([&](Tag tags) { return is_personal(tags); })),
        common_(columns([&](Tag tags) { return settings.all_shared || !is_personal(tags); })),
        moving_(columns([](Tag tags) { return has(tags, Tag::Trainable); })) {}

  SimNetOutcome run() {
    const Tensor initial = flatten(problem_.initial);
    const auto n = static_cast<std::int64_t>(problem_.clients.size());
    const bool zero = settings_.start_at_zero.value_or(settings_.personal == Personal::Head ||
                                                       settings_.all_shared);
    x_ = initial.index_select(0, common_);
    z_ = initial.index_select(0, own_).mul(zero ? 0 : 1).repeat({n, 1});
    result_.graph = client_graph(problem_, settings_.graph);
    for (std::int64_t t = 1; t <= problem_.rounds; ++t) round(t);
    for (std::int64_t k = 0; k < n; ++k) result_.personal.push_back(model_of(k));
    result_.shared = x_;
    return result_;
  }

 private:
  void round(std::int64_t t) {
    Tensor received = at::zeros({z_.size(0), row_size()}, at::kDouble);  // [N, P] nabla
    std::vector<SimNetRound> sent;
    double participants = 0;  // N
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem_, t)) {
      if (problem_.clients[static_cast<std::size_t>(k)].labels.size(0) == 0) continue;
      const GradientSum gradient = gradient_sum(problem_, k, t, model_of(k));
      loss.add(gradient.counted);
      ++participants;
      if (gradient.counted.samples == 0) continue;  // too few for batch norm
      const Tensor nabla = drawn_together(gradient.values, t);
      const Tensor arrived = settings_.transmitted ? settings_.transmitted(nabla) : nabla;
      sent.push_back({.shrinkage = moved(gradient.values, nabla),
                      .plateaus = plateaus_in(arrived, settings_.gamma > 0 ? kSamePlateau : 0),
                      .distortion = moved(nabla, arrived)});
      received[k].copy_(arrived);
    }
    participants = std::max(1.0, participants);
    SimNetRound noted = mean_of(sent);
    const Tensor target = z_ - eta_ / participants * received.index_select(1, own_);  // V
    x_ = x_ - problem_.lr / participants * received.sum(0).index_select(0, common_);
    z_ = pulled_together(z_, target, result_.graph, eta_, settings_, noted);
    result_.train_loss.push_back(loss.mean());
    result_.rounds.push_back(noted);
  }

  /// ||b - a|| / ||a|| of the columns that gradients move.
  double moved(const Tensor& a, const Tensor& b) const {
    const Tensor before = a.index_select(0, moving_);
    return relative(b.index_select(0, moving_) - before, before, before);
  }

  /// y^(n) = M x + N z^(n).
  Parameters model_of(std::int64_t k) const {
    const Tensor y = at::zeros({row_size()}, at::kDouble);
    y.index_add_(0, common_, x_);
    y.index_add_(0, own_, z_[k]);
    return unflatten(y, problem_.initial);
  }

  /// nabla [P], the trainable columns as the prox of gamma_t ||Lambda .||_1.
  Tensor drawn_together(const Tensor& gradient, std::int64_t t) const {
    const double gamma = gamma_of(static_cast<double>(t));
    if (gamma == 0) return gradient;
    const Tensor entries = gradient.index_select(0, moving_).contiguous();
    const auto* first = entries.const_data_ptr<double>();
    const Numbers solved = solved_by_dual({first, first + entries.numel()}, gamma);
    Tensor nabla = gradient.clone();
    nabla.index_copy_(0, moving_, at::tensor(solved, at::kDouble));
    return nabla;
  }

  double gamma_of(double t) const {
    switch (settings_.gamma_rule) {
      case GammaRule::InverseSqrt:
        return settings_.gamma / std::sqrt(t);
      case GammaRule::Inverse:
        return settings_.gamma / t;
      default:
        return settings_.gamma;
    }
  }

  /// NaN of nobody.
  static SimNetRound mean_of(const std::vector<SimNetRound>& clients) {
    const auto count = static_cast<double>(clients.size());
    SimNetRound sum;
    for (const SimNetRound& one : clients) {
      sum.shrinkage += one.shrinkage;
      sum.plateaus += one.plateaus;
      sum.distortion += one.distortion;
    }
    return {.shrinkage = sum.shrinkage / count,
            .plateaus = sum.plateaus / count,
            .distortion = sum.distortion / count};
  }

  /// Runs of neighbours that are equal to so much of the largest entry.
  static double plateaus_in(const Tensor& row, double tolerance) {
    const double limit = tolerance * row.abs().max().item<double>();
    return 1 + row.diff().abs().gt(limit).sum().item().toDouble();
  }

  bool is_personal(Tag tags) const {
    if (!has(tags, Tag::Trainable)) return false;
    switch (settings_.personal) {
      case Personal::Head:
        return has(tags, Tag::Head);
      case Personal::Body:
        return !has(tags, Tag::Head);
      case Personal::Norm:
        return has(tags, Tag::Norm);
      case Personal::All:
        return true;
      default:
        return false;
    }
  }

  /// The columns of the fields that `hold`.
  Tensor columns(const std::function<bool(Tag)>& hold) const {
    std::vector<std::int64_t> all;
    for (const Field& field : problem_.layout->fields()) {
      for (std::int64_t i = 0; hold(field.tags) && i < field.size; ++i) {
        all.push_back(field.offset + i);
      }
    }
    return at::tensor(all, at::kLong);
  }

  std::int64_t row_size() const { return problem_.layout->size(); }

  const Problem& problem_;
  const SimNetSettings& settings_;
  double eta_;
  Tensor own_;     // [d_2] columns that N selects
  Tensor common_;  // [d_1] columns that M selects
  Tensor moving_;  // columns that gradients move
  Tensor x_;       // [d_1]
  Tensor z_;       // [N, d_2]
  SimNetOutcome result_;
};

/// Q [N, E].
Tensor incidence(const ClientGraph& graph, std::int64_t nodes) {
  const Tensor q = at::zeros({nodes, static_cast<std::int64_t>(graph.edges.size())}, at::kDouble);
  for (std::size_t m = 0; m < graph.edges.size(); ++m) {
    q[graph.edges[m].first][static_cast<std::int64_t>(m)].fill_(1);
    q[graph.edges[m].second][static_cast<std::int64_t>(m)].fill_(-1);
  }
  return q;
}

}  // namespace

SimNetOutcome simnet(const Problem& problem, const SimNetSettings& settings) {
  return SimNet(problem, settings).run();
}

Tensor pulled_together(const Tensor& start, const Tensor& target, const ClientGraph& graph,
                       double eta, const SimNetSettings& settings, SimNetRound& noted) {
  if (graph.edges.empty() || settings.lambda == 0 || target.numel() == 0) return target;
  const std::int64_t nodes = start.size(0);
  const Tensor q = incidence(graph, nodes);
  const double degree = 2 * static_cast<double>(q.size(1)) / static_cast<double>(nodes);
  const double rho = settings.admm_rho.value_or(1 / (eta * (1 + degree)));
  const Tensor inverse =
      at::linalg_inv(at::eye(nodes, at::kDouble) + eta * rho * q.matmul(q.t()));  // [N, N]
  Tensor z;
  Tensor w = q.t().matmul(start);    // [E, d_2]
  Tensor omega = at::zeros_like(w);  // [E, d_2]
  bool last = false;
  for (std::int64_t k = 1; k <= settings.admm_steps && !last; ++k) {
    // Each step measures the one before it.
    last = k > 1 && std::max(noted.primal, noted.dual) <= settings.admm_tolerance;
    z = inverse.matmul(target + eta * q.matmul(omega + rho * w));
    const Tensor apart = q.t().matmul(z);
    const Tensor a = apart - omega / rho;
    for (std::int64_t m = 0; m < a.size(0); ++m) {
      const double weight = graph.weights[static_cast<std::size_t>(m)];
      w[m] = shrunk(a[m], settings.p, settings.lambda * weight / rho);
    }
    omega = omega + rho * (w - apart);
    const Tensor slope = (z - target) / eta;
    noted.primal = relative(w - apart, w, apart);
    noted.dual = relative(slope - q.matmul(omega), slope, q.matmul(omega));
    noted.steps = static_cast<double>(k);
  }
  return z;
}

Tensor shrunk(const Tensor& a, Distance p, double tau) {
  if (p == Distance::Manhattan) return a.sign() * (a.abs() - tau).clamp_min(0);
  if (p == Distance::Euclidean) {
    const double length = a.norm().item<double>();
    return length > tau ? a * (1 - tau / length) : at::zeros_like(a);
  }
  if (a.abs().sum().item<double>() <= tau) return at::zeros_like(a);
  // What is left has its largest entries at the level c with sum (|a_i| - c)_+ = tau.
  const Tensor sorted = std::get<0>(at::sort(a.abs(), 0, /*descending=*/true));
  double sum = 0;
  double level = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    sum += sorted[i].item<double>();
    const double candidate = (sum - tau) / static_cast<double>(i + 1);
    if (candidate < sorted[i].item<double>()) level = candidate;
  }
  return a.clamp(-level, level);
}

}  // namespace fedhpc::reference
