#pragma once

#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {

/// Fits factors [1, Q] to one model [1, P] by FactorMap::fit, layers spread over ranks. Collective.
Rows fit_on_server(Round& round, FactorMap& map, const Rows& model, const Rows& start,
                   std::int64_t sweeps);

}  // namespace fedhpc
