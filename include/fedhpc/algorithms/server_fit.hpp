#pragma once

#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {

/// FactorMap::fit of a single model [1, P], its layers spread over the ranks: [1, Q]. Collective.
Rows fit_on_server(Round& round, FactorMap& map, const Rows& model, const Rows& start,
                   std::int64_t sweeps);

}  // namespace fedhpc
