#pragma once

#include "fedhpc/models/description.hpp"

namespace fedhpc {

// What makes a layer of each kind of line.
#define FEDHPC_LAYER(name, sentence) MadeLayer make_##name##_layer(const LineReader& line);
#include "models/layers.def"
#undef FEDHPC_LAYER

}  // namespace fedhpc
