#include "fedhpc/algorithms/similarity_network.hpp"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/outer.h>

#include "fedhpc/math/distribution_distance.hpp"

namespace fedhpc {

namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kPooled = 1000;       // samples of all clients that give the bandwidth
constexpr std::int64_t kPooledOfClient = 8;  // at most, of each
constexpr double kRidge = 1e-3;              // of the mean variance, under the logarithm

/// Rows of one field: what clients tell of themselves.
Rows summaries(const std::vector<Tensor>& of_clients, std::int64_t width) {
  auto layout = std::make_shared<Layout>();
  layout->add("summary", {width}, width, Tag::Trainable);
  Tensor rows = at::empty({static_cast<std::int64_t>(of_clients.size()), width}, at::kDouble);
  for (std::size_t c = 0; c < of_clients.size(); ++c) {
    rows[static_cast<std::int64_t>(c)].copy_(of_clients[c].reshape({-1}));
  }
  return {rows, layout};
}

/// Distances of the summaries [N_r, w] of all ranks' clients, [N, N].
Tensor distances(const Coupling& clients, const Rows& rows) {
  return clients.squared_distances(rows, rows, rows.layout->ranges(Tag::Trainable)).sqrt_();
}

std::int64_t width_of(const Coupling& clients, const std::vector<Tensor>& samples) {
  return clients.most(samples.empty() ? 0 : samples.front().size(1));
}

std::int64_t most_samples(const Coupling& clients, const std::vector<Tensor>& samples) {
  std::int64_t most = 0;
  for (const Tensor& x : samples) most = std::max(most, x.size(0));
  return clients.most(most);
}

/// The median distance among the first samples of every client (of the first ones, where they are
/// many), the same on every rank.
double bandwidth(const Coupling& clients, const std::vector<Tensor>& samples, std::int64_t width) {
  const std::int64_t each = std::clamp<std::int64_t>(
      kPooled / std::max<std::int64_t>(1, clients.count()), 1, kPooledOfClient);
  Tensor first =
      at::full({static_cast<std::int64_t>(samples.size()), each, width}, kUndefined, at::kDouble);
  for (std::size_t c = 0; c < samples.size(); ++c) {
    const std::int64_t some = std::min(each, samples[c].size(0));
    first[static_cast<std::int64_t>(c)].narrow(0, 0, some).copy_(samples[c].narrow(0, 0, some));
  }
  const Tensor pooled = clients.all_rows(first).reshape({-1, width});
  return median_bandwidth(pooled.narrow(0, 0, std::min(kPooled, pooled.size(0))));
}

}  // namespace

void SimilarityNetwork::declare(OptionSet& options, const Condition& used) {
  const Condition met = both(used, unless("algorithm.neighbours", "0"));
  options
      .add(
          "algorithm.graph", space_,
          Names<Space>{{"data", Space::Data}, {"feature", Space::Feature}, {"model", Space::Model}},
          "what clients are compared by: distributions of samples, covariances of features, or "
          "local models")
      .acts(met);
  options
      .add("algorithm.neighbours", neighbours_, count_from(0),
           "nearest neighbours of each client; the relation is made symmetric")
      .acts(used);
  options
      .add("algorithm.kernel", kernel_,
           Names<Kernel>{
               {"auto", Kernel::Auto}, {"exact", Kernel::Exact}, {"fourier", Kernel::Fourier}},
           concat("how algorithm.graph = data evaluates the Gaussian kernel; auto: exact up to ",
                  kExactSamples, " samples a client"))
      .acts(met)
      .acts(where("algorithm.graph", {"data"}));
  options
      .add("algorithm.fourier_features", fourier_features_, count_from(2),
           "random Fourier features of the kernel, an even number")
      .acts(met)
      .acts(where("algorithm.graph", {"data"}))
      .acts(where("algorithm.kernel", {"auto", "fourier"}));
  options.add_check([this](const OptionSet& given) {
    if (fourier_features_ % 2 == 0) return;
    given.refuse("algorithm.fourier_features", "an odd number: they come in pairs; add one");
  });
  options
      .add("algorithm.covariance_distance", covariance_distance_,
           Names<CovarianceDistance>{{"frobenius", CovarianceDistance::Frobenius},
                                     {"log_euclidean", CovarianceDistance::LogEuclidean}},
           "distance of covariances, of algorithm.graph = feature")
      .acts(met)
      .acts(where("algorithm.graph", {"feature"}));
  options
      .add("algorithm.graph_passes", graph_passes_, count_from(1),
           "local trainings of the models that algorithm.graph = model compares")
      .acts(met)
      .acts(where("algorithm.graph", {"model"}));
  options
      .add("algorithm.edge_weights", edge_weights_,
           Names<EdgeWeights>{{"uniform", EdgeWeights::Uniform},
                              {"gaussian", EdgeWeights::Gaussian}},
           "weight of an edge: 1, or less the farther its clients are apart")
      .acts(met);
}

SimilarityGraph SimilarityNetwork::build(Round& everybody, std::span<const std::int64_t> own,
                                         const Rows& initial, std::uint64_t seed) {
  const Coupling clients = everybody.coupling(own);
  const Tensor apart =
      space_ == Space::Model
          ? model_distances(everybody, clients, own, initial)
          : (space_ == Space::Data ? discrepancies(clients, samples(everybody, own), seed)
                                   : covariance_distances(clients, samples(everybody, own), seed));
  bytes_ *= static_cast<double>(initial.values.itemsize());
  SimilarityGraph graph = knn_graph(apart, neighbours_);
  if (edge_weights_ == EdgeWeights::Gaussian) {
    graph.weights = gaussian_weights(apart, graph.edges);
  }
  return graph;
}

std::vector<Tensor> SimilarityNetwork::samples(Round& everybody,
                                               std::span<const std::int64_t> own) const {
  std::vector<Tensor> samples(own.size());
  everybody.each_block([&](Block& block) {
    for (const std::int64_t client : block.clients()) {
      samples[static_cast<std::size_t>(place_of(client, own))] = block.samples_of(client);
    }
  });
  return samples;
}

Tensor SimilarityNetwork::discrepancies(const Coupling& clients, const std::vector<Tensor>& samples,
                                        std::uint64_t seed) {
  const std::int64_t width = width_of(clients, samples);
  const double h = bandwidth(clients, samples, width);
  const std::int64_t most = most_samples(clients, samples);
  const bool exact = kernel_ == Kernel::Exact || (kernel_ == Kernel::Auto && most <= kExactSamples);
  if (!exact) {
    const FourierFeatures features(width, fourier_features_, h, seed);
    std::vector<Tensor> means;
    for (const Tensor& x : samples) means.push_back(features.mean_of(x));
    bytes_ = static_cast<double>(features.count());
    return distances(clients, summaries(means, features.count()));
  }
  std::int64_t sent = 0;
  for (const Tensor& x : samples) sent += x.numel();
  bytes_ = static_cast<double>(clients.total(sent)) / static_cast<double>(clients.count());
  const Tensor k = clients.over_pairs(
      samples, width, [h](const Tensor& x, const Tensor& y) { return kernel_mean(x, y, h); });
  const Tensor own = k.diagonal().clone();  // MMD^2 = k_ii + k_jj - 2 k_ij
  return (own.unsqueeze(0) + own.unsqueeze(1) - 2 * k).clamp_min_(0).sqrt_();
}

Tensor SimilarityNetwork::covariance_distances(const Coupling& clients,
                                               const std::vector<Tensor>& samples,
                                               std::uint64_t seed) {
  const std::int64_t features = width_of(clients, samples);
  const std::int64_t width = std::min(features, GaussianProjection::kDimensions);
  const GaussianProjection projection(features, seed);
  std::vector<Tensor> matrices;
  for (const Tensor& x : samples) {
    const Tensor c = covariance(projection.of(x));
    matrices.push_back(covariance_distance_ == CovarianceDistance::Frobenius ? c
                                                                             : log_spd(c, kRidge));
  }
  bytes_ = static_cast<double>(width * (width + 1)) / 2;  // symmetric
  return distances(clients, summaries(matrices, width * width));
}

Tensor SimilarityNetwork::model_distances(Round& everybody, const Coupling& clients,
                                          std::span<const std::int64_t> own, const Rows& initial) {
  const Rows models{at::empty({static_cast<std::int64_t>(own.size()), initial.layout->size()},
                              initial.values.options()),
                    initial.layout};
  everybody.each_block([&](Block& block) {
    Rows trained = block.download(initial);
    for (std::int64_t pass = 0; pass < graph_passes_; ++pass) {
      trained = block.train(trained, {.pass = pass});
    }
    const std::span<const double> weights = block.weights(Weighting::Uniform);
    for (std::int64_t c = 0; c < block.count(); ++c) {
      const auto i = static_cast<std::size_t>(c);
      const std::int64_t place = place_of(block.clients()[i], own);
      models.values[place].copy_(trained.values[c]);
      if (weights[i] == 0) models.values[place].fill_(kUndefined);  // no samples: like nobody
    }
  });
  bytes_ = static_cast<double>(initial.layout->count(Tag::Trainable));
  return distances(clients, models);
}

}  // namespace fedhpc
