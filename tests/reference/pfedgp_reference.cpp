#include "reference/pfedgp_reference.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/math/polya_gamma.hpp"

#include "reference/class_tree.hpp"
#include "reference/network.hpp"

namespace fedhpc::reference {

namespace {

/// Rows of length 1; rows of zeros stay and have no gradient.
Tensor units_of(const Tensor& values) {
  const Tensor length = values.square().sum(1, /*keepdim=*/true);
  const Tensor none = length.eq(0);
  return values / length.add(none).sqrt() * none.logical_not();
}

/// One node of a client's tree.
class Node {
 public:
  Node(const PFedGPSettings& settings, const Tensor& known, const Tensor& sides)
      : settings_(settings), known_(known), sides_(sides) {}

  /// Draws of omega, [draws, n].
  Tensor draw(DrawKey key, std::int64_t draws, std::int64_t steps) const {
    const Tensor k = covariance(known_.detach());
    const Tensor root = at::linalg_cholesky(k);
    const Tensor kappa = sides_ / 2;
    std::vector<Tensor> omegas;
    for (std::int64_t chain = 0; chain < draws; ++chain) {
      ++key.epoch;
      Draws stream(key);
      const auto normals = [&] {
        const Tensor values = at::empty({known_.size(0)}, at::kDouble);
        for (std::int64_t i = 0; i < values.size(0); ++i) values[i].fill_(stream.normal());
        return values;
      };
      const auto polya_gammas = [&](const Tensor& f) {
        const Tensor values = at::empty({known_.size(0)}, at::kDouble);
        for (std::int64_t i = 0; i < values.size(0); ++i) {
          values[i].fill_(polya_gamma(f[i].item<double>(), stream));
        }
        return values;
      };
      Tensor omega = polya_gammas(root.matmul(normals()));
      for (std::int64_t step = 0; step < steps; ++step) {
        const Tensor prior = root.matmul(normals());
        const Tensor noise = normals() / omega.sqrt();
        const Tensor inverse = at::linalg_inv(k + at::diag(1 / omega));
        omega = polya_gammas(prior + k.matmul(inverse.matmul(kappa / omega - prior - noise)));
      }
      omegas.push_back(omega);
    }
    return at::stack(omegas);
  }

  /// P(side) of other samples [m], the mean over omegas.
  Tensor probabilities(const Tensor& others, const Tensor& sides, const Tensor& omegas) const {
    const Tensor k = covariance(known_);
    const Tensor cross = between(known_, others);
    Tensor sum = at::zeros({others.size(0)}, at::kDouble);
    for (std::int64_t chain = 0; chain < omegas.size(0); ++chain) {
      const Tensor inverse = at::linalg_inv(k + at::diag(1 / omegas[chain]));
      const Tensor mean = cross.t().matmul(inverse.matmul(sides_ / 2 / omegas[chain]));
      const Tensor variance =
          settings_.outputscale + settings_.jitter - (cross * inverse.matmul(cross)).sum(0);
      sum = sum + over_normal(mean, variance, sides);
    }
    return sum / static_cast<double>(omegas.size(0));
  }

 private:
  Tensor between(const Tensor& a, const Tensor& b) const {
    const Tensor squares = (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(2);
    return settings_.outputscale *
           (-squares / (2 * settings_.lengthscale * settings_.lengthscale)).exp();
  }
  Tensor covariance(const Tensor& a) const {
    return between(a, a) + settings_.jitter * at::eye(a.size(0), at::kDouble);
  }
  /// Gauss-Hermite quadrature of 20 nodes from the eigenvalues of the Jacobi matrix.
  Tensor over_normal(const Tensor& mean, const Tensor& variance, const Tensor& sides) const {
    constexpr std::int64_t kNodes = 20;
    const Tensor jacobi = at::zeros({kNodes, kNodes}, at::kDouble);
    for (std::int64_t i = 1; i < kNodes; ++i) {
      jacobi[i][i - 1].fill_(std::sqrt(static_cast<double>(i)));
      jacobi[i - 1][i].fill_(std::sqrt(static_cast<double>(i)));
    }
    const auto [nodes, vectors] = at::linalg_eigh(jacobi);
    const Tensor weights = vectors[0].square();
    const Tensor f = mean.unsqueeze(1) + variance.sqrt().unsqueeze(1) * nodes;  // [m, nodes]
    if (!settings_.logarithms) return (f * sides.unsqueeze(1)).sigmoid().matmul(weights);
    const Tensor left = at::log_sigmoid(f).matmul(weights).exp();
    return left * sides.gt(0) + (1 - left) * sides.lt(0);
  }

  const PFedGPSettings& settings_;
  Tensor known_;
  Tensor sides_;
};

/// Which of these samples are at a node, and on which side: 1, -1, or 0.
Tensor sides_at(const ClassSplit& split, const Tensor& labels) {
  const Tensor sides = at::zeros({labels.size(0)}, at::kDouble);
  for (const std::int64_t label : split.left) sides.masked_fill_(labels.eq(label), 1);
  for (const std::int64_t label : split.right) sides.masked_fill_(labels.eq(label), -1);
  return sides;
}

constexpr std::uint64_t kNodeEpochs = 65536;

class PlainPFedGP {
 public:
  PlainPFedGP(const Problem& problem, const PFedGPSettings& settings)
      : problem_(problem), settings_(settings), moving_(trainable(problem, Part::Body)) {}

  PFedGPOutcome run() {
    Parameters theta = problem_.initial;
    if (settings_.inducing_points > 0) {
      moving_.push_back(theta.size());
      theta.push_back(first_points());
    }
    for (std::int64_t t = 1; t <= problem_.rounds; ++t) {
      Average next;
      RoundLoss loss;
      for (const std::int64_t k : cohort(problem_, t)) {
        const Trained trained = train(k, t, theta);
        next.add(trained.parameters, weight_of(problem_, k));
        loss.add(trained);
      }
      theta = next.mean_or(theta);
      outcome_.train_loss.push_back(loss.mean());
    }
    outcome_.accuracy = accuracy(theta);
    theta.resize(problem_.initial.size());
    outcome_.personal.assign(problem_.clients.size(), theta);
    return outcome_;
  }

 private:
  /// [classes, E]
  const std::vector<std::int64_t>& head() const {
    for (const Field& field : problem_.layout->fields()) {
      if (has(field.tags, Tag::Head) && field.shape.size() == 2) return field.shape;
    }
    throw std::logic_error("no classifier");
  }
  std::int64_t classes() const { return head()[0]; }

  /// The inducing points at first, [classes N, E].
  Tensor first_points() const {
    const Tensor points =
        at::empty({classes() * settings_.inducing_points, head()[1]}, at::kDouble);
    Draws draws(
        {.seed = problem_.seed, .purpose = Purpose::Gibbs, .pass = (std::uint64_t{1} << 31) + 1});
    for (std::int64_t i = 0; i < points.numel(); ++i) {
      points.data_ptr<double>()[i] = settings_.inducing_deviation * draws.normal();
    }
    return points;
  }

  /// Those of a flat row, as units; none where there are none.
  Tensor point_units(const Tensor& row) const {
    const std::int64_t models = problem_.layout->size();
    const std::int64_t count = classes() * settings_.inducing_points;
    if (count == 0) return {};
    const Tensor points = row.narrow(0, models, row.size(0) - models);
    return units_of(points.view({count, points.size(0) / count}));
  }

  /// The class of each.
  Tensor point_labels() const {
    return at::arange(classes()).repeat_interleave(settings_.inducing_points);
  }

  /// Probabilities of sides where sides are distributed otherwise than what is known.
  static Tensor weighed(const Tensor& p, const Tensor& sides, const Tensor& distribution,
                        const Tensor& known) {
    const auto weight = [&](double side) {
      const Tensor wanted = distribution.eq(side).to(at::kDouble).mean();
      return wanted / known.eq(side).to(at::kDouble).mean();
    };
    const Tensor own = at::where(sides.gt(0), weight(1), weight(-1));
    const Tensor other = at::where(sides.gt(0), weight(-1), weight(1));
    return own * p / (own * p + other * (1 - p));
  }

  std::vector<ClassSplit> tree_of(std::int64_t k, const Parameters& theta) const {
    const Client& client = problem_.clients[static_cast<std::size_t>(k)];
    if (client.labels.size(0) == 0) return {};
    return class_tree(embedding(problem_, flatten(theta), client.features, Use::Evaluation),
                      client.labels);
  }

  Trained train(std::int64_t k, std::int64_t t, const Parameters& theta) {
    const std::vector<ClassSplit> tree = tree_of(k, theta);
    Trained result;
    for (const Tensor& parameter : theta) result.parameters.push_back(parameter.clone());
    Optimizer optimizer(problem_.optimizer);
    std::uint64_t step = 0;
    for (const auto& batch : batches(problem_, k, t, /*pass=*/0)) {
      const Tensor row = flatten(result.parameters).requires_grad_(true);
      const Tensor moved = flatten(result.parameters);
      const Client& client = problem_.clients[static_cast<std::size_t>(k)];
      const Tensor index = at::tensor(batch, at::kLong);
      const Tensor embedded =
          embedding(problem_, row, client.features.index_select(0, index), Use::Training, moved);
      const DrawKey key{.seed = problem_.seed,
                        .purpose = Purpose::Gibbs,
                        .pass = step++,
                        .client = static_cast<std::uint64_t>(k),
                        .round = static_cast<std::uint64_t>(t)};
      const Tensor labels = client.labels.index_select(0, index);
      const Tensor loss =
          settings_.inducing_points > 0
              ? loss_by_points(tree, embedded, labels, client.labels, point_units(row), key)
              : loss_of(tree, embedded, labels, key);
      Parameters gradient = result.parameters;
      for (Tensor& part : gradient) part = at::zeros(part.sizes(), at::kDouble);
      if (loss.requires_grad()) {
        loss.backward();
        gradient = unflatten(row.grad(), result.parameters);
      }
      result.parameters = unflatten(moved, result.parameters);
      result.count(loss.item<double>(), batch.size());
      gradient = chosen(gradient, moving_);
      clip_(gradient);
      Parameters body = chosen(result.parameters, moving_);
      optimizer.step_(body, gradient);
      for (std::size_t i = 0; i < moving_.size(); ++i) result.parameters[moving_[i]] = body[i];
    }
    return result;
  }

  void clip_(Parameters& gradient) {
    const auto bodies =
        static_cast<std::ptrdiff_t>(gradient.size() - (settings_.inducing_points > 0 ? 1 : 0));
    const auto end = gradient.begin() + bodies;
    const double length = flatten({gradient.begin(), end}).norm().item<double>();
    if (settings_.clip == 0 || length <= settings_.clip) return;
    ++outcome_.clipped;
    std::for_each(gradient.begin(), end,
                  [&](Tensor& part) { part = part * (settings_.clip / length); });
  }

  Tensor loss_of(const std::vector<ClassSplit>& tree, const Tensor& embedded, const Tensor& labels,
                 DrawKey key) {
    const Tensor units = units_of(embedded);
    Tensor sum = at::zeros({}, at::kDouble);
    for (std::size_t node = 0; node < tree.size(); ++node) {
      key.epoch = kNodeEpochs * node;
      const Tensor sides = sides_at(tree[node], labels);
      const Tensor mine = sides.nonzero().flatten();
      const std::int64_t count = mine.size(0);
      double left[2] = {std::floor(settings_.scored_share * sides.lt(0).sum().item().toDouble()),
                        std::floor(settings_.scored_share * sides.gt(0).sum().item().toDouble())};
      std::vector<std::int64_t> known;
      std::vector<std::int64_t> scored;
      for (const std::int64_t i : permutation(key, count)) {
        const auto place = mine[i].item<std::int64_t>();
        double& of_side = left[sides[place].item<double>() > 0 ? 1 : 0];
        (of_side > 0 ? scored : known).push_back(place);
        of_side -= 1;
      }
      if (known.empty() || scored.empty()) continue;
      outcome_.scored += static_cast<std::int64_t>(scored.size());
      const Tensor at_known = at::tensor(known, at::kLong);
      const Tensor at_scored = at::tensor(scored, at::kLong);
      const Node classifier(settings_, units.index_select(0, at_known),
                            sides.index_select(0, at_known));
      const Tensor omegas = classifier.draw(key, settings_.draws, settings_.gibbs_steps);
      const Tensor p = classifier.probabilities(units.index_select(0, at_scored),
                                                sides.index_select(0, at_scored), omegas);
      sum = sum - (p + 1e-12).log().mean();
    }
    return sum;
  }

  /// All samples of a batch, by classifiers that know the points alone.
  Tensor loss_by_points(const std::vector<ClassSplit>& tree, const Tensor& embedded,
                        const Tensor& labels, const Tensor& of_client, const Tensor& points,
                        DrawKey key) {
    const Tensor units = units_of(embedded);
    Tensor sum = at::zeros({}, at::kDouble);
    for (std::size_t node = 0; node < tree.size(); ++node) {
      key.epoch = kNodeEpochs * node;
      const Tensor sides = sides_at(tree[node], labels);
      const Tensor mine = sides.nonzero().flatten();
      if (mine.size(0) == 0) continue;
      const Tensor scored = sides.index_select(0, mine);
      outcome_.scored += mine.size(0);
      const Tensor known = sides_at(tree[node], point_labels());
      const Tensor at_node = known.nonzero().flatten();
      const Node classifier(settings_, points.index_select(0, at_node),
                            known.index_select(0, at_node));
      const Tensor omegas = classifier.draw(key, settings_.draws, settings_.gibbs_steps);
      const Tensor p = classifier.probabilities(units.index_select(0, mine), scored, omegas);
      const Tensor wanted = sides_at(tree[node], of_client);
      const Tensor of_node = wanted.index_select(0, wanted.nonzero().flatten());
      const Tensor corrected = weighed(p, scored, of_node, known.index_select(0, at_node));
      sum = sum - (corrected + 1e-12).log().mean();
    }
    return sum;
  }

  double accuracy(const Parameters& theta) const {
    double sum = 0;
    double clients = 0;
    for (std::size_t k = 0; k < problem_.clients.size(); ++k) {
      const Client& test = problem_.tests[k];
      if (test.labels.size(0) == 0) continue;
      const Tensor classes = predicted(static_cast<std::int64_t>(k), theta, test.features);
      sum += classes.eq(test.labels).to(at::kDouble).mean().item<double>();
      clients += 1;
    }
    return sum / clients;
  }

  Tensor predicted(std::int64_t k, const Parameters& theta, const Tensor& features) const {
    const Client& client = problem_.clients[static_cast<std::size_t>(k)];
    if (client.labels.size(0) == 0) return at::zeros({features.size(0)}, at::kLong);
    const Tensor table = at::zeros({features.size(0), classes()}, at::kDouble);
    for (std::int64_t label = 0; label < classes(); ++label) {
      if (client.labels.eq(label).any().item<bool>()) table.select(1, label).fill_(1);
    }
    const Tensor row = flatten(theta);
    const Tensor own = units_of(embedding(problem_, row, client.features, Use::Evaluation));
    const Tensor others = units_of(embedding(problem_, row, features, Use::Evaluation));
    const Tensor points = point_units(row);
    const std::vector<ClassSplit> tree = tree_of(k, theta);
    for (std::size_t node = 0; node < tree.size(); ++node) {
      const Tensor sides = sides_at(tree[node], client.labels);
      const Tensor mine = sides.nonzero().flatten();
      const Tensor of_samples = sides.index_select(0, mine);
      Tensor known = own.index_select(0, mine);
      Tensor of_known = of_samples;
      if (points.defined()) {
        const Tensor of_points = sides_at(tree[node], point_labels());
        const Tensor at_node = of_points.nonzero().flatten();
        known = at::cat({known, points.index_select(0, at_node)});
        of_known = at::cat({of_known, of_points.index_select(0, at_node)});
      }
      const Node classifier(settings_, known, of_known);
      const DrawKey key{.seed = problem_.seed,
                        .purpose = Purpose::Gibbs,
                        .pass = std::uint64_t{1} << 31,
                        .epoch = kNodeEpochs * node,
                        .client = static_cast<std::uint64_t>(k),
                        .round = static_cast<std::uint64_t>(problem_.rounds)};
      const Tensor omegas = classifier.draw(key, settings_.test_draws, settings_.test_gibbs_steps);
      const Tensor left = at::ones({others.size(0)}, at::kDouble);
      const Tensor p =
          weighed(classifier.probabilities(others, left, omegas), left, of_samples, of_known);
      for (const std::int64_t label : tree[node].left) table.select(1, label).mul_(p);
      for (const std::int64_t label : tree[node].right) table.select(1, label).mul_(1 - p);
    }
    return table.argmax(1);
  }

  const Problem& problem_;
  const PFedGPSettings& settings_;
  std::vector<std::size_t> moving_;
  PFedGPOutcome outcome_;
};

}  // namespace

PFedGPOutcome pfedgp(const Problem& problem, const PFedGPSettings& settings) {
  return PlainPFedGP(problem, settings).run();
}

}  // namespace fedhpc::reference
