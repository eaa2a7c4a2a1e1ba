#pragma once

#include <cstdint>

namespace fedhpc {

/// Counts the bytes that tensors in host memory take, by the allocator they come from. Tensors made
/// before the process had its first meter do not count. Of one thread's tensors.
class AllocationMeter {
 public:
  AllocationMeter();
  /// From here on peak() is the most bytes held at one time.
  void restart();
  std::int64_t peak() const;
};

}  // namespace fedhpc
