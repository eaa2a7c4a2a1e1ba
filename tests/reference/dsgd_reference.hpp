#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// What a client sends instead of a model.
struct GradientSum {
  Tensor values;  ///< [P] sum of the gradients along its local steps
  Trained counted;
};

/// Plain gradient steps of client k from `start`, whose gradients are added up; the place of a
/// running statistic holds (what it was - what it has become) / lr.
GradientSum gradient_sum(const Problem& problem, std::int64_t k, std::int64_t round,
                         const Parameters& start);

/// x <- x - lr (1/N) sum_n g^(n), weighted as the problem says.
Outcome dsgd(const Problem& problem);

}  // namespace fedhpc::reference
