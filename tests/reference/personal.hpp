#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// What a method leaves that pulls a personal model theta_k to a local one that is shared.
struct PersonalOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;  // [N] theta_k after the client's last local step
  std::vector<Parameters> local;     // [N] its local model then

  explicit PersonalOutcome(std::size_t clients) : personal(clients), local(clients) {}
  /// Gives every client without a local step the model it would start from.
  void complete(const Parameters& start);
};

/// (1 - beta) from + beta to.
Parameters mixed(const Parameters& from, const Parameters& to, double beta);

/// Some steps of a fresh optimizer on f(theta; batch) + lambda/2 ||theta - centre||^2. The first one
/// moves theta's running statistics.
struct PersonalSteps {
  OptimizerSettings optimizer;
  double lambda = 0;
  std::int64_t count = 0;

  /// Takes them; returns the data loss where the first gradient was taken.
  double take_(const Problem& problem, Parameters& theta, const Parameters& centre,
               const Client& client, const std::vector<std::int64_t>& batch) const;
};

}  // namespace fedhpc::reference
