#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/models/model.hpp"

namespace fedhpc {

// The builder of every family: the model for samples of `shape`.
#define FEDHPC_MODEL(name, sentence)                                         \
  std::unique_ptr<Model> make_##name(const ModelOptions& options,            \
                                     const std::vector<std::int64_t>& shape, \
                                     const Outputs& outputs);
#include "models/models.def"
#undef FEDHPC_MODEL

}  // namespace fedhpc
