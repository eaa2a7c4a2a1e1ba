#pragma once

#include <functional>
#include <optional>

#include "reference/client_graph.hpp"
#include "reference/dsgd_reference.hpp"

namespace fedhpc::reference {

/// p of the distance of neighbours.
enum class Distance { Manhattan, Euclidean, Chebyshev };

enum class GammaRule { Constant, InverseSqrt, Inverse };

struct SimNetSettings {
  /// Columns of z: the classifier, all others, batch norm's scales and shifts, all, or none.
  enum class Personal { Head, Body, Norm, All, None };

  Personal personal = Personal::Head;
  bool all_shared = false;                 ///< x has all columns, else those that z has not
  std::optional<bool> start_at_zero = {};  ///< z_1; none: a classifier and what lies over x
  Distance p = Distance::Euclidean;
  double lambda = 0.01;
  std::optional<double> personal_lr = {};  ///< none: that of x
  std::int64_t admm_steps = 10;
  std::optional<double> admm_rho = {};  ///< none: 1 / (personal_lr (1 + 2 E / N))
  double admm_tolerance = 0;            ///< residuals after which there is one more step
  double gamma = 0;
  GammaRule gamma_rule = GammaRule::Constant;
  ClientGraphSettings graph = {};
  /// What arrives of a row [P] that is sent; none: the row.
  std::function<Tensor(const Tensor&)> transmitted = {};
};

/// What a round has noted.
struct SimNetRound {
  double primal = 0;  ///< ||W - Z Q|| relative to the larger of both
  double dual = 0;    ///< ||(Z - V) / eta - Omega Q^T|| likewise
  double steps = 0;
  double shrinkage = 0;  ///< means over the clients that have trained
  double plateaus = 0;
  double distortion = 0;
};

struct SimNetOutcome {
  std::vector<Parameters> personal;  // [N] y
  Tensor shared;                     // [d_1] x
  ClientGraph graph;
  std::vector<double> train_loss;
  std::vector<SimNetRound> rounds;
};

/// The similarity-network method, its formulas corrected.
SimNetOutcome simnet(const Problem& problem, const SimNetSettings& settings);

/// The Z [N, d_2] that some steps of alternating directions come to from Z_t = `start` towards V =
/// `target`.
Tensor pulled_together(const Tensor& start, const Tensor& target, const ClientGraph& graph,
                       double eta, const SimNetSettings& settings, SimNetRound& noted);

/// argmin_w tau ||w||_p + ||w - a||^2 / 2 of a [d].
Tensor shrunk(const Tensor& a, Distance p, double tau);

}  // namespace fedhpc::reference
