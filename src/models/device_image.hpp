#pragma once

#include "fedhpc/core/device.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/image_layers.hpp"

namespace fedhpc {

inline DeviceImage device_image(const ImageShape& shape) {
  return {.channels = shape.channels, .height = shape.height, .width = shape.width};
}

/// True for images by channels, [C, B, channels, places].
inline bool lies_by_channels(const Tensor& stack) { return stack.dim() == 4; }

}  // namespace fedhpc
