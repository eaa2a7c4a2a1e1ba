#include "fedhpc/algorithms/fedbn.hpp"

namespace fedhpc {

void FedBN::declare(OptionSet& options) {
  PartAveraging::declare(options);
  options.acts("train.buffers", unless("algorithm.name", "fedbn"));  // statistics are the clients'
}

RowPart FedBN::own_part(const LayoutPtr& model) const {
  return {model, {.with = Tag::Norm | Tag::Buffer}};
}

}  // namespace fedhpc
