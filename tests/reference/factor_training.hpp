#pragma once

#include <optional>

#include "reference/averaging.hpp"
#include "reference/factorised_model.hpp"

/// Rounds in which clients train factors through the weights they stand for.
namespace fedhpc::reference {

/// What a method of factors leaves.
struct FactorOutcome {
  Outcome outcome;
  Parameters factors;                               // the row of factors
  std::vector<double> aggregation_gap;              // per round
  std::vector<std::vector<double>> effective_rank;  // per round, of every factorised layer
  std::vector<double> truncation_error;             // per round, FedHM's
  std::vector<double> catch_up_numbers;             // per round, FedMUD's, of 8 bytes each
  std::vector<std::string> layers;                  // names of the factorised ones
  std::int64_t row_size = 0;                        // Q
};

/// w = frozen + expand(u) on factorised layers; what passes through is that of u.
struct FactorPoint {
  const FactorisedModel& model;
  Parameters frozen;
  std::vector<Parameters> constants;

  Parameters at(const Parameters& u) const { return model.compose(frozen, constants, u); }
};

/// Trains client k's factors from `start` on the batches of a pass, with a fresh optimizer or with
/// `optimizer`, which goes on.
Trained train_factors(const Problem& problem, std::int64_t k, std::int64_t round,
                      const FactorPoint& point, const Parameters& start, std::int64_t pass = 0,
                      Optimizer* optimizer = nullptr);

/// A round of all clients drawn, from u: gives sum_k p_k u_k, and appends the round's loss, gap and
/// effective ranks.
Parameters averaging_factors(const Problem& problem, std::int64_t round, const FactorPoint& point,
                             const Parameters& u, FactorOutcome& result);

/// Names and sizes of what the model is made of, for the result.
FactorOutcome outcome_of(const FactorisedModel& model);

/// T rounds of averaged factors that stand for the whole weights, drawn U(-range, range), or normal
/// without a range.
FactorOutcome averaged_factors(const Problem& problem, const FactorisationSettings& settings,
                               const std::optional<double>& range);

}  // namespace fedhpc::reference
