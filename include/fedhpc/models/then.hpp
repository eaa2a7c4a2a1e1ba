#pragma once

namespace fedhpc {

/// What follows a layer and is computed with it: a ReLU, and after that max pooling of 2x2 windows
/// with stride 2.
enum class Then { Nothing, Relu, ReluMaxPool };

}  // namespace fedhpc
