#pragma once

#include <cstdint>
#include <memory>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/range.hpp"

namespace fedhpc {

// Ranges of columns rise and lie apart.

/// Top-K: of the columns `among`, the k largest magnitudes arrive, the first of equal ones, and 0
/// in the place of the others. All other columns arrive as they are. Sends k entries whatever their
/// values, so that every payload has one size. 0 <= k <= columns among.
std::unique_ptr<Codec> make_largest_codec(ColumnRanges among, std::int64_t k);

/// Sends a bit for every column of a tensor and one number s, for rows that hold s or -s in all of
/// them. All other columns arrive as they are. Other rows arrive as their signs times each tensor's
/// first magnitude.
std::unique_ptr<Codec> make_sign_codec(ColumnRanges tensors);

}  // namespace fedhpc
