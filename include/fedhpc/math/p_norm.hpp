#pragma once

namespace fedhpc {

/// p of a vector's p-norm.
enum class VectorNorm { One, Two, Infinity };

}  // namespace fedhpc
