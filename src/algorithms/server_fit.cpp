#include "fedhpc/algorithms/server_fit.hpp"

#include "fedhpc/core/device.hpp"

namespace fedhpc {

Rows fit_on_server(Round& round, FactorMap& map, const Rows& model, const Rows& start,
                   std::int64_t sweeps) {
  const Rows host_model{on_host(model.values), model.layout};
  const Rows host_start{on_host(start.values), start.layout};
  const std::vector<Tensor> layers = round.on_server(map.layers(), [&](std::int64_t l) {
    return map.fit_layer(l, host_model, host_start, sweeps);
  });
  return map.assemble(layers, model);
}

}  // namespace fedhpc
