#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct FedRepOutcome {
  std::vector<Parameters> personal;  // [N] the common body with every client's own head
  std::vector<double> train_loss;    // per round
};

/// Collins et al. 2021, Algorithm 1: some trainings of the head on a fixed body, one of the body on
/// a fixed head; the server averages bodies, heads stay with the clients. In the authors' program
/// one optimizer goes through all epochs of a client's round (with PyTorch from 2.0 on it leaves
/// what is frozen alone).
FedRepOutcome fedrep(const Problem& problem, std::int64_t head_passes, bool one_optimizer = false);

/// `model` with the head of `other`.
Parameters with_head_of(const Problem& problem, const Parameters& model, const Parameters& other);

}  // namespace fedhpc::reference
