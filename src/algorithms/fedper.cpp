#include "fedhpc/algorithms/fedper.hpp"

namespace fedhpc {

void FedPer::declare(OptionSet& options) {
  options.add("algorithm.layers", layers_, count_from(0),
              "top layers that stay with the clients (K_P), the classifier first; 0: FedAvg");
  PartAveraging::declare(options);
}

RowPart FedPer::own_part(const LayoutPtr& model) const {
  return {model, first_of_top(*model, layers_), {}};
}

}  // namespace fedhpc
