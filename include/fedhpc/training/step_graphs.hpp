#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/training/local_step.hpp"

namespace fedhpc {

/// Local steps captured as graphs: what a step enqueues is the same at every step with batches of
/// the same sizes, for what differs lies in the device's memory. The launches of a whole step then
/// cost the host one call.
class StepGraphs {
 public:
  /// What a captured step depends on beside the contents of device memory.
  struct Key {
    std::vector<BatchRun> runs;
    std::vector<double> numbers;         ///< of the rule and the penalty
    std::vector<std::int64_t> sizes;     ///< C, columns, number type, precision...
    std::vector<const void*> addresses;  ///< of all that outlives the step

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// Takes a step: calls it when it has not been seen before, which also warms up what has to
  /// measure or allocate; then captures it (a call that computes nothing) and replays the graph. If
  /// a step cannot be captured, it and all others are called, and the user is told so once.
  void take(const Key& key, const std::function<void()>& step);

  std::int64_t captured() const { return captured_; }

 private:
  static constexpr std::size_t kMost = 16;  // each holds the memory of a step's temporaries

  std::map<Key, std::unique_ptr<DeviceGraph>> graphs_;  // null: seen once
  std::int64_t captured_ = 0;
  bool possible_ = true;
};

}  // namespace fedhpc
