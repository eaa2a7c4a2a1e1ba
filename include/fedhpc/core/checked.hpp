#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

/// Returns the product of sizes; throws ConfigError where 64 bits do not hold it. `what` names the
/// thing counted: "the local steps of a client".
inline std::int64_t checked_product(std::string_view what,
                                    std::initializer_list<std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(product, size, &product)) {
      throw ConfigError(concat(what, " are more than 2^63; lower the keys that they follow from"));
    }
  }
  return product;
}

inline std::int64_t checked_sum(std::string_view what, std::initializer_list<std::int64_t> sizes) {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) {
    if (__builtin_add_overflow(sum, size, &sum)) {
      throw ConfigError(concat(what, " are more than 2^63; lower the keys that they follow from"));
    }
  }
  return sum;
}

}  // namespace fedhpc
