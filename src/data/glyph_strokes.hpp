#pragma once

#include <array>
#include <vector>

namespace fedhpc {

struct Point {
  float x = 0;
  float y = 0;
};

/// A polyline that belongs to a digit; an optional one is there in some samples only.
struct Stroke {
  std::vector<Point> points;
  bool optional = false;
};

/// The strokes of the ten digits. A digit is 2 high and about 1.2 wide, centred on (0, 0); y points
/// down as rows of an image do.
const std::array<std::vector<Stroke>, 10>& digit_strokes();

}  // namespace fedhpc
