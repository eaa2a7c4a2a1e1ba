#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/models/model.hpp"

namespace fedhpc {

// The builder of every family: the model for samples of `shape` and K classes.
#define FEDHPC_MODEL(name, sentence)  \
  std::unique_ptr<Model> make_##name( \
      const ModelOptions& options, const std::vector<std::int64_t>& shape, std::int64_t classes);
#include "models/models.def"
#undef FEDHPC_MODEL

}  // namespace fedhpc
