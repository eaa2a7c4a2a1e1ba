#pragma once

#include <set>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct PartOutcome {
  std::vector<Parameters> personal;  // [N] what is common with what is every client's own
  std::vector<double> train_loss;    // per round
};

/// Clients train whole models; the server averages all tensors but those at the places `own`, which
/// stay with the clients. FedPer: the top layers. LG-FedAvg: those below them. FedBN: batch norm.
PartOutcome part_averaging(const Problem& problem, const std::set<std::size_t>& own);

/// The places of the `layers` top layers, each a weight with all that follows it up to the next.
std::set<std::size_t> top_layers(const Problem& problem, std::int64_t layers);
/// The places of all others.
std::set<std::size_t> below_top_layers(const Problem& problem, std::int64_t layers);
/// The places of batch norm's scales, shifts and running statistics.
std::set<std::size_t> batch_norm(const Problem& problem);

}  // namespace fedhpc::reference
