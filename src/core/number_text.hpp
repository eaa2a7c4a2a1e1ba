#pragma once

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

template <typename T>
std::string print_number(T value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);  // shortest exact form
  return {buffer, result.ptr};
}

template <typename T>
T parse_number(const std::string& text, const Bounds<T>& bounds) {
  T value{};
  if (text.starts_with("+-")) throw std::invalid_argument("two signs");
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) throw std::out_of_range("too large, or too small");
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number");
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) throw std::invalid_argument("not finite");
    value += T{0};  // -0 is 0: keys are compared by their texts
  }
  const bool too_low = bounds.low_open ? value <= bounds.low : value < bounds.low;
  const bool too_high = bounds.high_open ? value >= bounds.high : value > bounds.high;
  if (too_low || too_high) throw std::invalid_argument("out of range");
  return value;
}

}  // namespace fedhpc
