#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include <lzma.h>

namespace fedhpc {

/// CRC-64/XZ of what is added, 16 hexadecimal digits.
class Digest {
 public:
  static constexpr std::size_t kDigits = 16;  ///< of text()

  void add(const void* bytes, std::size_t count) {
    value_ = lzma_crc64(static_cast<const std::uint8_t*>(bytes), count, value_);
  }
  /// A list of numbers and how many they are.
  template <typename List>
  void add(const List& numbers) {
    const std::uint64_t count = numbers.size();
    add(&count, sizeof count);
    add(numbers.data(), count * sizeof *numbers.data());
  }
  std::string text() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace fedhpc
