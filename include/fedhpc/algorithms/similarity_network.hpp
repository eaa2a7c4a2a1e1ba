#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/math/similarity_graph.hpp"

namespace fedhpc {

/// The similarity network of the clients: each one's nearest neighbours, the relation made
/// symmetric, by the distance of
///
///   data     the distributions of samples: the maximum mean discrepancy under a Gaussian kernel
///            whose bandwidth is the median distance of some samples of each client; exactly (which
///            takes the samples themselves) where no client has more than kExactSamples, else by
///            random Fourier features, of which a client sends the mean
///   feature  the covariances of features, in the Frobenius norm or that of their logarithms; wider
///            data than GaussianProjection::kDimensions are projected first
///   model    local models trained from the common initial one, over all trainable columns
///
/// A client without training samples has no neighbours.
///
/// Every number of ranks gives the same graph.
class SimilarityNetwork {
 public:
  /// The kernel is evaluated pair by pair up to so many samples of a client.
  static constexpr std::int64_t kExactSamples = 200;

  /// Declares algorithm.graph, neighbours, kernel, fourier_features, covariance_distance,
  /// graph_passes and edge_weights, which act where there is a use for the network.
  void declare(OptionSet& options, const Condition& used);
  /// Returns the network of all clients; `everybody` is the round before the first. `own` are the
  /// clients of this rank, ascending. Collective.
  SimilarityGraph build(Round& everybody, std::span<const std::int64_t> own, const Rows& initial,
                        std::uint64_t seed);
  /// The mean over all clients of what each has told the server for the last network built, in
  /// bytes of the run's number type.
  double bytes_per_client() const { return bytes_; }
  std::int64_t neighbours() const { return neighbours_; }

 private:
  enum class Space { Data, Feature, Model };
  enum class Kernel { Auto, Exact, Fourier };
  enum class CovarianceDistance { Frobenius, LogEuclidean };
  enum class EdgeWeights { Uniform, Gaussian };

  /// Features of the training samples of each client of this rank, [n, D].
  std::vector<Tensor> samples(Round& everybody, std::span<const std::int64_t> own) const;
  Tensor discrepancies(const Coupling& clients, const std::vector<Tensor>& samples,
                       std::uint64_t seed);
  Tensor covariance_distances(const Coupling& clients, const std::vector<Tensor>& samples,
                              std::uint64_t seed);
  Tensor model_distances(Round& everybody, const Coupling& clients,
                         std::span<const std::int64_t> own, const Rows& initial);

  Space space_ = Space::Data;
  std::int64_t neighbours_ = 5;
  Kernel kernel_ = Kernel::Auto;
  std::int64_t fourier_features_ = 512;
  CovarianceDistance covariance_distance_ = CovarianceDistance::Frobenius;
  std::int64_t graph_passes_ = 10;
  EdgeWeights edge_weights_ = EdgeWeights::Uniform;
  double bytes_ = 0;
};

}  // namespace fedhpc
