// Synthetic(alpha, beta): Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx),
// MLSys 2020, section 5.1; used by Dinh et al., "Personalized Federated Learning with Moreau
// Envelopes" (pFedMe), NeurIPS 2020. For client k
//
//   u_k ~ N(0, alpha),  B_k ~ N(0, beta)
//   W_k [K, D], b_k [K] ~ N(u_k, 1),  v_k [D] ~ N(B_k, 1)
//   x ~ N(v_k, diag(j^-1.2)), j = 1..D,   y = argmax(W_k x + b_k)
//
//   paper  alpha                 beta                 K             D
//   key    data.synthetic_alpha  data.synthetic_beta  data.classes  data.features
//
// alpha and beta are standard deviations, as in the public code of both papers (numpy's
// normal(0, alpha)), from which the published figures come; read as variances they would differ
// unless 0 or 1. Deviation: every client has data.samples_per_client samples, not a log-normal
// number. u_k moves all K scores of a sample alike, so that alpha changes no label and no sample.
// Limit case: alpha = beta = 0 still draws W_k and v_k per client, so it is not iid.
//
// With data.synthetic_clusters = G > 0 clients form planted clusters: client k has u, B, W, b and v
// of cluster k mod G, each drawn once by the same law, and samples of its own. G = 1 is iid; G of
// data.clients or more is no clusters.
//
// Draws of client k (Purpose::Generator, client = k; in clusters client = k mod G): u_k, B_k, W_k
// row by row, b_k, v_k with pass 0; the features of its i-th sample with pass 1, epoch i, client =
// k. With data.split=official a further fifth (at least 1) of samples per client is the official
// test set, i counting on.

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>

#include "fedhpc/core/rng.hpp"

#include "data/datasets.hpp"
#include "data/samples_of_clients.hpp"

namespace fedhpc {

namespace {

/// What the labels and features of one client, or of a cluster's clients, follow.
struct ClientModel {
  std::int64_t owner = -1;     // client or cluster
  std::vector<double> weight;  // [D, K]: the scores of all classes grow side by side
  std::vector<double> bias;    // [K]
  std::vector<double> mean;    // [D]
  std::vector<double> scores;  // [K] of the sample made last
};

class Synthetic : public Dataset {
 public:
  explicit Synthetic(const DataOptions& options) : options_(options), samples_(options) {
    for (std::int64_t j = 1; j <= options.features; ++j) {
      deviation_.push_back(std::pow(static_cast<double>(j), -0.6));
    }
  }

  std::vector<std::int64_t> shape() const override { return {options_.features}; }
  std::int64_t classes() const override { return options_.classes; }
  std::int64_t num_train() const override { return samples_.num_train(); }
  std::int64_t num_test() const override { return samples_.num_test(); }
  bool on_demand() const override { return true; }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> labels;
    labels.reserve(static_cast<std::size_t>(num_train() + num_test()));
    ClientModel model;
    std::vector<double> features(deviation_.size());
    for (std::int64_t id = 0; id < num_train() + num_test(); ++id) {
      labels.push_back(generate(id, model, features.data()));
    }
    return labels;
  }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::empty({count, options_.features}, at::kDouble),
                    at::empty({count}, at::kLong)};
    auto* features = samples.features.data_ptr<double>();
    auto* labels = samples.labels.data_ptr<std::int64_t>();
    const auto owner = [&](std::int64_t client) { return owner_of(client); };
    ClientModel model;
    for (const std::int64_t i : samples_.by_client(ids, owner)) {
      labels[i] = generate(ids[i], model, features + i * options_.features);
    }
    return samples;
  }

  std::vector<std::int64_t> natural_clients() const override { return samples_.clients(); }

 private:
  DrawKey key(std::int64_t client) const {
    return {.seed = static_cast<std::uint64_t>(options_.seed),
            .purpose = Purpose::Generator,
            .client = static_cast<std::uint64_t>(client)};
  }

  /// Whose model and mean a client has: its own, or its cluster's.
  std::int64_t owner_of(std::int64_t client) const {
    return options_.synthetic_clusters > 0 ? client % options_.synthetic_clusters : client;
  }

  ClientModel draw_model(std::int64_t owner) const {
    Draws draws(key(owner));
    const double u = options_.synthetic_alpha * draws.normal();
    const double b = options_.synthetic_beta * draws.normal();
    const auto classes = static_cast<std::size_t>(options_.classes);
    ClientModel model;
    model.owner = owner;
    model.weight.resize(classes * deviation_.size());
    for (std::size_t c = 0; c < classes; ++c) {
      for (std::size_t j = 0; j < deviation_.size(); ++j) {
        model.weight[j * classes + c] = u + draws.normal();
      }
    }
    for (std::int64_t i = 0; i < options_.classes; ++i) model.bias.push_back(u + draws.normal());
    for (std::int64_t i = 0; i < options_.features; ++i) model.mean.push_back(b + draws.normal());
    return model;
  }

  /// Writes the features of a sample and returns its label. `model` is that of the sample before
  /// and is drawn again only when the client or cluster changes.
  std::int64_t generate(std::int64_t id, ClientModel& model, double* features) const {
    const auto [client, number] = samples_.place_of(id);
    const std::int64_t owner = owner_of(client);
    if (owner != model.owner) model = draw_model(owner);
    DrawKey sample = key(client);
    sample.pass = 1;
    sample.epoch = static_cast<std::uint64_t>(number);
    Draws draws(sample);
    for (std::size_t j = 0; j < deviation_.size(); ++j) {
      features[j] = model.mean[j] + deviation_[j] * draws.normal();
    }
    model.scores = model.bias;
    const double* weight = model.weight.data();
    for (std::size_t j = 0; j < deviation_.size(); ++j) {
      const double x = features[j];
      for (double& score : model.scores) score += *weight++ * x;
    }
    return std::max_element(model.scores.begin(), model.scores.end()) - model.scores.begin();
  }

  DataOptions options_;
  SamplesOfClients samples_;
  std::vector<double> deviation_;  // [D]
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const DataOptions& options) {
  return std::make_unique<Synthetic>(options);
}

}  // namespace fedhpc
