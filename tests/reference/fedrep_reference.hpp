#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct FedRepOutcome {
  std::vector<Parameters> personal;  // [N] the common body with every client's own head
  std::vector<double> train_loss;    // per round
};

/// Collins et al. 2021, Algorithm 1: some trainings of the head on a fixed body, one of the body on
/// a fixed head; the server averages bodies, heads stay with the clients.
FedRepOutcome fedrep(const Problem& problem, std::int64_t head_passes);

/// `model` with the head of `other`.
Parameters with_head_of(const Problem& problem, const Parameters& model, const Parameters& other);

}  // namespace fedhpc::reference
