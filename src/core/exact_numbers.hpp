#pragma once

namespace fedhpc {

/// 2^53: up to here a double is the whole number that was written. Beyond, several become one.
inline constexpr double kLargestExact = 9007199254740992;

}  // namespace fedhpc
