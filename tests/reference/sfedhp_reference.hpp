#pragma once

#include <functional>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// When gamma1 and gamma2 become later ones: by the density of the clients' models, by the number
/// of rounds, by one of the two, by both, or gamma1 by the first and gamma2 by the second.
enum class GammaSchedule { Constant, Either, Both, Each };

struct SFedHPSettings {
  double lambda1 = 20;
  double lambda2 = 20;
  double gamma1 = 0;
  double gamma2 = 0;
  double rho = 6e-5;
  double beta = 1;
  std::int64_t edge_rounds = 20;  ///< R
  std::int64_t inner_steps = 5;   ///< K
  double accuracy = 0;            ///< nu
  double personal_lr = 0.05;      ///< eta_2
  double zero_threshold = 1e-3;
  bool restart_every_step = true;  ///< theta <- phi_i in every edge round, not only once a round
  GammaSchedule gamma_schedule = GammaSchedule::Either;
  double gamma_density = 0.2;
  std::int64_t gamma_rounds = 100;
  double gamma_later = 1e-6;
  /// What arrives of a model [P]; empty: all of it.
  std::function<Tensor(const Tensor&)> transmitted = {};
};

/// gamma1 and gamma2 of a round.
struct Gammas {
  double one = 0;
  double two = 0;
};

struct SFedHPOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;  // [N] theta_{i,j}; of a client that never trained: w
  std::vector<Parameters> edges;     // [E] w_i as sent last
  // Per round: means over the clients that trained and over the drawn edges, and of w.
  std::vector<double> density_personal;
  std::vector<double> density_edge;
  std::vector<double> density_global;
  std::vector<double> bits_up;  // of an edge by the paper's code
  std::vector<Gammas> gammas;
  // Problems (8) for which (9) held before the K steps were done, and the others.
  std::int64_t reached = 0;
  std::int64_t not_reached = 0;
};

/// Liu, Wang, Shao, Li: sFedHP, Algorithm 1 with (8) to (11), models made sparse by a threshold.
/// The problem's optimizer takes the steps on theta.
SFedHPOutcome sfedhp(const Problem& problem, const SFedHPSettings& settings);

}  // namespace fedhpc::reference
