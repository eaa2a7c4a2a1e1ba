#include "data/glyph_strokes.hpp"

#include <cmath>
#include <numbers>

namespace fedhpc {

namespace {

/// Points of an ellipse around (x, y) from one angle to another, in degrees; with y pointing down,
/// 0 is right, 90 is below, 270 is above.
std::vector<Point> arc(float x, float y, float radius_x, float radius_y, float from, float to) {
  constexpr float kDegreesPerPoint = 24;
  const int steps = static_cast<int>(std::ceil(std::abs(to - from) / kDegreesPerPoint));
  std::vector<Point> points;
  for (int i = 0; i <= steps; ++i) {
    const float degrees = from + (to - from) * static_cast<float>(i) / static_cast<float>(steps);
    const float angle = degrees * std::numbers::pi_v<float> / 180;
    points.push_back({x + radius_x * std::cos(angle), y + radius_y * std::sin(angle)});
  }
  return points;
}

std::vector<Point> joined(std::vector<Point> first, const std::vector<Point>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

const std::array<std::vector<Stroke>, 10>& digit_strokes() {
  static const std::array<std::vector<Stroke>, 10> strokes = {{
      {{arc(0, 0, .55F, .95F, 270, 630)}},
      {{{{-.32F, -.55F}, {.05F, -.95F}, {.05F, 0}, {.05F, .95F}}},
       {{{-.35F, .95F}, {.45F, .95F}}, true}},
      {{joined(arc(0, -.45F, .5F, .5F, 190, 400), {{-.05F, .45F}, {-.52F, .95F}, {.57F, .95F}})}},
      {{joined(arc(0, -.48F, .46F, .47F, 200, 440), arc(0, .46F, .54F, .49F, 280, 520))}},
      {{{{.25F, .95F}, {.25F, 0}, {.25F, -.95F}, {-.2F, -.25F}, {-.58F, .35F}, {.62F, .35F}}}},
      {{joined({{.5F, -.95F}, {-.38F, -.95F}, {-.43F, -.5F}}, arc(0, .35F, .54F, .58F, 220, 500))}},
      {{joined(arc(.45F, .38F, .95F, 1.33F, 265, 180), arc(0, .42F, .5F, .53F, 180, 540))}},
      {{{{-.52F, -.95F}, {.55F, -.95F}, {.2F, 0}, {-.12F, .95F}}}, {{{-.2F, 0}, {.5F, 0}}, true}},
      {{arc(0, -.48F, .43F, .46F, 90, 450)}, {arc(0, .46F, .53F, .48F, 270, 630)}},
      {{joined(arc(-.45F, -.38F, .95F, 1.33F, 85, 0), arc(0, -.42F, .5F, .53F, 0, 360))}},
  }};
  return strokes;
}

}  // namespace fedhpc
