#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "fedhpc/training/planned_batches.hpp"
#include "fedhpc/training/step_graphs.hpp"

namespace fedhpc {

/// How the steps of a pass are taken: on the host each is called. On a device those that are alike
/// are captured, for the pass or for those to come as well, and nothing waits for the device but
/// who asks for a loss: the host is at one pass while the device is at the one before.
class StepTaker {
 public:
  explicit StepTaker(at::Device device) : on_device_(!device.is_cpu()) {}

  /// Waits for the pass before the last one, if need be: what is enqueued holds memory.
  void stay_near_device();
  /// Begins a planned pass. `repeated` names its steps, all but their runs, where steps of other
  /// passes are the same.
  void begin(const PlannedBatches& planned, Steps steps, std::optional<StepGraphs::Key> repeated);
  /// Takes step `number`, which `call` makes; adds what it counts.
  void take(std::int64_t number, const StepGraphs::Call& call,
            std::vector<TrainStatistics>& statistics);
  /// Ends the pass. On a device its losses are those of `losses` [C], once they are asked for, and
  /// what they are sums of is in `counts` [C] where that is defined.
  void end(const Tensor& losses, const Tensor& counts, std::vector<TrainStatistics>& statistics);

  /// Rows as repeated steps find them: on a device a copy, in memory that stays where it is from
  /// one block to the next and where each row begins at a multiple of 128 bytes; on the host
  /// themselves.
  Rows held(const Rows& rows) { return held(rows_, rows); }
  Rows held_centres(const Rows& rows) { return held(centres_, rows); }
  /// Forgets all steps: what they work on has moved.
  void forget() { repeated_.clear(); }

  std::int64_t captured() const { return repeated_.captured() + of_pass_.captured(); }
  void capture(bool wanted) { wanted_ = wanted; }

 private:
  static constexpr std::int64_t kPassesAhead = 2;

  Rows held(Rows& memory, const Rows& rows);

  bool on_device_;
  bool wanted_ = true;
  StepGraphs repeated_;
  StepGraphs of_pass_;
  Rows rows_;
  Rows centres_;
  std::deque<std::shared_ptr<DeferredNumbers>> ahead_;  // losses of the last passes

  // Of the pass in hand:
  const PlannedBatches* planned_ = nullptr;
  bool alike_ = false;
  std::optional<StepGraphs::Key> key_;
};

}  // namespace fedhpc
