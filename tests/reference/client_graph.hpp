#pragma once

#include <functional>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// Which clients are alike, and how much.
struct ClientGraph {
  std::vector<std::pair<std::int64_t, std::int64_t>> edges;  // the smaller client first, ascending
  std::vector<double> weights;
};

struct ClientGraphSettings {
  /// data: kernel means; fourier: their random features; feature, log_feature: covariances or
  /// their logarithms; model: local models.
  enum class Space { Data, Fourier, Feature, LogFeature, Model };
  Space space = Space::Data;
  std::int64_t neighbours = 5;
  std::int64_t fourier_features = 512;
  std::int64_t passes = 10;  ///< local trainings of the models compared
  bool gaussian_weights = false;
};

/// d [N][N], by definition: NaN where a client has no training samples.
std::vector<std::vector<double>> client_distances(const Problem& problem,
                                                  const ClientGraphSettings& settings);

/// Each client is joined with those that are nearest, of equally near ones the first.
ClientGraph nearest_neighbours(const std::vector<std::vector<double>>& distances,
                               std::int64_t neighbours);

/// Both, with weights 1 or exp(-d^2 / (2 s^2)), s the median of d over the edges.
ClientGraph client_graph(const Problem& problem, const ClientGraphSettings& settings);

/// Of some values, at least one: of an even number the mean of the two in the middle.
double median(std::vector<double> values);

}  // namespace fedhpc::reference
