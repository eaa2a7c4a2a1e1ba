#pragma once

#include <cstdint>

namespace fedhpc {

/// What a method does for one client beside steps of its model and scoring it.
struct OwnWork {
  std::int64_t bytes = 0;          ///< that it works in, for one client at a time
  double steps_of_evaluation = 0;  ///< an evaluation takes as long as so many local steps
};

/// A method whose clients have work of their own, which a plan counts.
class HasOwnWork {
 public:
  virtual ~HasOwnWork() = default;
  /// For a client with so many samples, `batch` of them in a local step.
  virtual OwnWork own_work(std::int64_t train, std::int64_t test, std::int64_t batch) const = 0;
};

}  // namespace fedhpc
