#include "fedhpc/rounds/state_visitor.hpp"

#include <ATen/ops/full.h>

namespace fedhpc {

void StateVisitor::number(const std::string& name, double& value) {
  Tensor held = at::full({1}, value, at::kDouble);
  tensor(name, held);
  value = held.item<double>();
}

void StateVisitor::integer(const std::string& name, std::int64_t& value) {
  Tensor held = at::full({1}, value, at::kLong);
  tensor(name, held);
  value = held.item<std::int64_t>();
}

}  // namespace fedhpc
