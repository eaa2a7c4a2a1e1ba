#include "fedhpc/algorithms/lg_fedavg.hpp"

namespace fedhpc {

void LGFedAvg::declare(OptionSet& options) {
  options.add("algorithm.layers", layers_, count_from(0),
              "top layers that are global, the classifier first; 0: LocalOnly");
  PartAveraging::declare(options);
  options.acts("train.buffers", unless("algorithm.name", "lg_fedavg"));  // they go with the layers
}

RowPart LGFedAvg::own_part(const LayoutPtr& model) const {
  return RowPart(model, first_of_top(*model, layers_), {}).rest();
}

}  // namespace fedhpc
