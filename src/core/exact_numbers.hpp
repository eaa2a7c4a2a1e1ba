#pragma once

namespace fedhpc {

/// 2^53: below it a double is the whole number that was written. From here on several become one.
inline constexpr double kLargestExact = 9007199254740992;

}  // namespace fedhpc
