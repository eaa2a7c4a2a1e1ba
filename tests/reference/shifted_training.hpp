#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// Trains client k from `start` on its loss with  <shift, w> + mu/2 ||w - start||^2  added; `shift`
/// holds the trainable parameters.
Trained shifted_train(const Problem& problem, std::int64_t k, std::int64_t round,
                      const Parameters& start, const Parameters& shift, double mu);

/// a + factor b, tensor by tensor.
Parameters plus(const Parameters& a, double factor, const Parameters& b);

/// Zeros in the shapes of the trainable parameters.
Parameters no_shift(const Problem& problem);

/// |P| / N of a round, of clients with training samples.
double share_of(const Problem& problem, const std::vector<std::int64_t>& cohort);

}  // namespace fedhpc::reference
