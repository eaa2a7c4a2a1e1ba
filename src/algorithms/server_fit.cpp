#include "fedhpc/algorithms/server_fit.hpp"

namespace fedhpc {

Rows fit_on_server(Round& round, FactorMap& map, const Rows& model, const Rows& start,
                   std::int64_t sweeps) {
  const std::vector<Tensor> layers = round.on_server(
      map.layers(), [&](std::int64_t l) { return map.fit_layer(l, model, start, sweeps); });
  return map.assemble(layers, model);
}

}  // namespace fedhpc
