#include "fedhpc/models/window.hpp"

#include <algorithm>

namespace fedhpc {

std::vector<Covered> WindowSide::covered(std::int64_t length, bool count_padding) const {
  std::vector<Covered> all;
  for (std::int64_t i = 0; i < outputs(length); ++i) {
    const std::int64_t begin = i * stride - padding;
    const std::int64_t before = begin < 0 ? (-begin + dilation - 1) / dilation : 0;
    Covered one{begin + before * dilation, std::min(begin + span(), length)};
    const std::int64_t places = (one.last - one.first + dilation - 1) / dilation;
    const std::int64_t padded = std::min(begin + span(), length + padding) - begin;
    one.count = count_padding ? padded : places;
    all.push_back(one);
  }
  return all;
}

std::vector<Covered> adaptive_parts(std::int64_t length, std::int64_t outputs) {
  std::vector<Covered> all;
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t first = i * length / outputs;
    const std::int64_t last = ((i + 1) * length + outputs - 1) / outputs;
    all.push_back({first, last, last - first});
  }
  return all;
}

}  // namespace fedhpc
