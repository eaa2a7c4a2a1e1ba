#pragma once

#include <string>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Values with the name that a result file has for them.
struct NamedTensor {
  std::string name;
  Tensor values;
};

}  // namespace fedhpc
