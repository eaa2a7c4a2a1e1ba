#include "reference/fedala_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "reference/nets.hpp"

namespace fedhpc::reference {

namespace {

bool ends_in_weight(const std::string& name) {
  const std::string end = ".weight";
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// 1 where gradients move the top layers, else 0; [P].
Tensor top_of(const Problem& problem, std::int64_t layers) {
  const std::vector<Field>& fields = problem.layout->fields();
  Tensor mask = at::zeros_like(flatten(problem.initial));
  std::int64_t found = 0;
  for (auto field = fields.rbegin(); field != fields.rend() && found < layers; ++field) {
    if (!has(field->tags, Tag::Trainable)) continue;
    mask.narrow(0, field->offset, field->size).fill_(1);
    if (ends_in_weight(field->name) && !has(field->tags, Tag::Norm)) ++found;
  }
  return mask;
}

/// The plain mean of what is not left out.
struct Series {
  double sum = 0;
  double count = 0;
  void add(double value) {
    sum += value;
    count += 1;
  }
  double mean() const { return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN(); }
};

/// What a client keeps; undefined until it has trained, and learned weights.
struct Kept {
  Tensor local;    // [P] Theta_i
  Tensor weights;  // [P] W_i
};

class FedALA {
 public:
  FedALA(const Problem& problem, const FedALASettings& settings)
      : problem_(problem),
        settings_(settings),
        top_(top_of(problem, settings.layers)),
        kept_(problem.clients.size()) {}

  FedALAOutcome run() {
    Parameters global = problem_.initial;
    for (std::int64_t t = 1; t <= problem_.rounds; ++t) global = round(t, global);
    result_.outcome.global = flatten(global);
    for (const Kept& kept : kept_) {
      const Tensor theta = flatten(global);
      const bool mixes = kept.local.defined() && kept.weights.defined();
      result_.personal.push_back(mixes ? unflatten(mixed(kept, theta, kept.weights), global)
                                       : global);
      result_.weights.push_back(kept.weights);
    }
    return result_;
  }

 private:
  Parameters round(std::int64_t t, const Parameters& global) {
    Average next;
    RoundLoss loss;
    Series accuracy;
    Series weight;
    Series passes;
    const std::vector<std::int64_t> drawn = cohort(problem_, t);
    for (std::int64_t k = 0; k < std::ssize(problem_.clients); ++k) {
      const bool present = std::find(drawn.begin(), drawn.end(), k) != drawn.end();
      if (!present && !(settings_.learn_all && t > 1)) continue;
      Kept& kept = kept_[static_cast<std::size_t>(k)];
      Tensor start = flatten(global);
      if (settings_.learn_all && t > 1 && !kept.local.defined() &&
          !batches(problem_, k, t, 0).empty()) {
        kept.local = flatten(problem_.initial);
      }
      if (kept.local.defined()) {
        if (!kept.weights.defined()) {
          kept.weights = at::ones_like(start);
          passes.add(static_cast<double>(learn_to_convergence_(k, t, kept, start)));
        } else {
          learn_(k, t, 1, kept, start);
        }
        start = mixed(kept, start, kept.weights);
        weight.add(kept.weights.mul(top_).sum().item<double>() / top_.sum().item<double>());
      }
      const Client& tests = problem_.tests[static_cast<std::size_t>(k)];
      const auto samples = static_cast<double>(tests.labels.size(0));
      if (samples > 0) {
        accuracy.add(correct(problem_, unflatten(start, global), tests) / samples);
      }
      if (!present) {
        if (kept.local.defined()) kept.local = start;
        continue;
      }
      const Trained trained = train(problem_, k, t, {.pass = 0}, unflatten(start, global));
      next.add(trained.parameters, weight_of(problem_, k));
      loss.add(trained);
      if (trained.samples == 0) continue;
      kept.local = flatten(trained.parameters);
    }
    result_.outcome.train_loss.push_back(loss.mean());
    result_.reception_accuracy.push_back(accuracy.mean());
    result_.global_weight.push_back(weight.mean());
    result_.start_passes.push_back(passes.mean());
    return next.mean_or(global);
  }

  /// (4): Theta_i + (Theta - Theta_i) W in the top layers, Theta elsewhere.
  Tensor mixed(const Kept& kept, const Tensor& theta, const Tensor& weights) const {
    const Tensor in_top = kept.local + (theta - kept.local) * weights;
    return top_ * in_top + (1 - top_) * theta;
  }

  std::int64_t learn_to_convergence_(std::int64_t k, std::int64_t t, Kept& kept,
                                     const Tensor& theta) const {
    std::vector<double> losses;
    for (std::int64_t pass = 1; pass <= settings_.start_passes; ++pass) {
      const Tensor before = kept.weights.clone();
      losses.push_back(learn_(k, t, pass, kept, theta));
      if (settings_.watches_losses) {
        if (losses.size() <= 10) continue;
        const Tensor last = at::tensor(std::vector<double>(losses.end() - 10, losses.end()));
        if (last.std(/*unbiased=*/false).item<double>() < settings_.tolerance) return pass;
        continue;
      }
      const double square = (kept.weights - before).square().sum().item<double>();
      if (std::sqrt(square / top_.sum().item<double>()) <= settings_.tolerance) return pass;
    }
    return settings_.start_passes;
  }

  /// (5) and (6), batch by batch; the last one's loss.
  double learn_(std::int64_t k, std::int64_t t, std::int64_t pass, Kept& kept,
                const Tensor& theta) const {
    const Client& client = problem_.clients[static_cast<std::size_t>(k)];
    double last = 0;
    for (const auto& batch :
         batches_of_share(problem_, k, t, pass, settings_.share, settings_.slice)) {
      const Tensor weights = kept.weights.detach().clone().requires_grad_(true);
      const Tensor loss = loss_at(mixed(kept, theta, weights), client, batch);
      loss.backward();
      last = loss.item<double>();
      kept.weights = weights.detach().sub(weights.grad() * top_, settings_.weight_lr).clamp(0, 1);
    }
    return last;
  }

  Tensor loss_at(const Tensor& row, const Client& client,
                 const std::vector<std::int64_t>& batch) const {
    const Tensor index = at::tensor(batch, at::kLong);
    std::vector<std::int64_t> shape = problem_.shape;
    shape.insert(shape.begin(), static_cast<std::int64_t>(batch.size()));
    const Tensor samples = client.features.index_select(0, index).view(shape);
    return at::cross_entropy_loss(
        testing::reference_logits(problem_.model, *problem_.layout, row, samples, Use::Training),
        client.labels.index_select(0, index));
  }

  const Problem& problem_;
  FedALASettings settings_;
  Tensor top_;  // [P]
  std::vector<Kept> kept_;
  FedALAOutcome result_;
};

}  // namespace

FedALAOutcome fedala(const Problem& problem, const FedALASettings& settings) {
  return FedALA(problem, settings).run();
}

}  // namespace fedhpc::reference
