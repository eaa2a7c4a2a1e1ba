#pragma once

#include <cstdint>

namespace fedhpc {

/// Of one sample: [channels, height, width], stored channel by channel, row by row.
struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t places() const { return height * width; }
  std::int64_t values() const { return channels * places(); }
};

}  // namespace fedhpc
