#pragma once

#include "reference/link.hpp"

namespace fedhpc::reference {

/// Federated averaging whose clients send the k largest of their changes, with error feedback; with
/// `k_down` above 0 clients receive the k_down largest changes of what they have.
Outcome top_k_fedavg(const Problem& problem, std::int64_t k, Feedback feedback,
                     std::int64_t k_down = 0);

/// Hierarchical averaging, whose edges send so as well.
Outcome top_k_hierfavg(const Problem& problem, std::int64_t kappa_2, std::int64_t k,
                       Feedback feedback, std::int64_t k_down = 0);

/// SCAFFOLD, option II, both of whose payloads travel so, each with feedback of its own.
Outcome top_k_scaffold(const Problem& problem, std::int64_t k, Feedback feedback,
                       std::int64_t k_down = 0);

}  // namespace fedhpc::reference
