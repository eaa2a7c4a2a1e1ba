#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/models/window.hpp"

#include "models/convolution_tiles.hpp"

namespace fedhpc {

/// The places of an image that see the same taps of a window, in the same order and distance. What
/// lies outside the image is not seen, so zeros around it cost nothing.
struct PlacesAlike {
  std::vector<Run> runs;             // in the other image, its channels side by side
  std::vector<std::int32_t> places;  // [n], row by row
  std::vector<std::int32_t> pixels;  // [n] where the runs begin in the other image
};

/// The outputs of a convolution by what they see of its inputs. Weights go from the first tap to the
/// last.
std::vector<PlacesAlike> outputs_alike(const ImageShape& in, const ImageShape& out,
                                       const Window& window);

/// The inputs by what sees them of the outputs. Weights go from the last tap to the first.
std::vector<PlacesAlike> inputs_alike(const ImageShape& in, const ImageShape& out,
                                      const Window& window);

}  // namespace fedhpc
