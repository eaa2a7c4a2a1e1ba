#include "fedhpc/codecs/compressors.hpp"

#include "fedhpc/core/error.hpp"

#include "codecs/format_codec.hpp"
#include "codecs/largest.hpp"
#include "codecs/signs.hpp"

namespace fedhpc {

namespace {

void require_rising(const ColumnRanges& ranges) {
  std::int64_t last = 0;
  for (const auto& [begin, end] : ranges) {
    require(last <= begin && begin < end, "column ranges rise and are not empty");
    last = end;
  }
}

}  // namespace

std::unique_ptr<Codec> make_largest_codec(ColumnRanges among, std::int64_t k) {
  require_rising(among);
  Largest format{.columns = SplitRow(std::move(among)), .k = k};
  require(0 <= k && k <= format.columns.count(), "no more values are sent than there are");
  return std::make_unique<FormatCodec<Largest>>("largest", std::move(format));
}

std::unique_ptr<Codec> make_sign_codec(ColumnRanges tensors) {
  require_rising(tensors);
  return std::make_unique<FormatCodec<Signs>>("signs",
                                              Signs{.columns = SplitRow(std::move(tensors))});
}

}  // namespace fedhpc
