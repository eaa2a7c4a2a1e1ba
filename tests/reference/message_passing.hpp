#pragma once

#include <functional>

#include "reference/link.hpp"

namespace fedhpc::reference {

/// What a method leaves that keeps one model for every client and no common one.
struct MessagesOutcome {
  std::vector<Parameters> models;  // [N]
  std::vector<double> train_loss;  // per round
};

/// The weights xi_i [N] of all clients' models in the message to client i, its own included.
using Weights =
    std::function<std::vector<double>(std::size_t i, const std::vector<Parameters>& models)>;

/// Rounds in which every participant i gets u_i = sum_j xi_ij w_j of the models before the round
/// and trains from there with the term lambda/2 ||w - u_i||^2. Both travel by `link`; null: whole.
MessagesOutcome message_passing(const Problem& problem, double lambda, const Weights& weights,
                                Link* link = nullptr);

/// <a, b> over all parameters.
double inner_product(const Parameters& a, const Parameters& b);

}  // namespace fedhpc::reference
