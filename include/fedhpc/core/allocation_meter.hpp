#pragma once

#include <cstdint>

namespace fedhpc {

/// Counts the bytes that tensors of one thread take in host memory, by the allocator they come
/// from. Tensors made before the process had its first meter do not count.
class AllocationMeter {
 public:
  AllocationMeter();
  /// Makes peak() the most bytes held at one time from here on.
  void restart();
  std::int64_t peak() const;
};

}  // namespace fedhpc
