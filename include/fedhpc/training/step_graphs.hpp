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

/// Captures local steps as graphs. A step enqueues the same work at every step with batches of the
/// same sizes, for what differs lies in the device's memory. The launches of a whole step then cost
/// the host one call.
class StepGraphs {
 public:
  /// A captured step depends on these beside the contents of device memory.
  struct Key {
    std::vector<BatchRun> runs;
    std::vector<double> numbers;         ///< of the rule and the penalty
    std::vector<std::int64_t> sizes;     ///< C, columns, number type, precision...
    std::vector<const void*> addresses;  ///< of memory that may move between two passes

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// Makes a step and adds to what the host counts of each client, [C].
  using Call = std::function<void(std::vector<TrainStatistics>& counted)>;

  /// Begins a pass; says how many of its steps have which runs.
  void begin(std::map<std::vector<BatchRun>, std::int64_t> with_runs);
  /// Takes a step: calls it when it has not been seen before, which also warms up what has to
  /// measure or allocate; then captures it (a call that computes nothing) and replays the graph.
  /// One that no earlier pass has had may not come again later, as its rate may be of this round
  /// alone: it is captured where the pass has enough of them. What the first call counted counts
  /// each time; clients of one run count the same.
  ///
  /// Graphs take memory, so there are no more than some. A further step is called, unless one of
  /// them has a rate that this pass has not, or has long not been used. If a step cannot be captured,
  /// it and all others are called, and the user is told so once.
  void take(const Key& key, const Call& call, std::vector<TrainStatistics>& statistics);

  /// Forgets all graphs: the memory they work on has moved.
  void clear();

  std::int64_t captured() const { return captured_; }  ///< so far

 private:
  static constexpr std::size_t kMostGraphs = 128;
  static constexpr std::int64_t kLong = 4096;        // steps
  static constexpr std::size_t kMostSeen = 4096;     // keys
  static constexpr std::int64_t kWorthACapture = 4;  // steps: one is called, one captured

  struct Step {
    std::unique_ptr<DeviceGraph> graph{};    // null: seen only
    std::vector<TrainStatistics> counted{};  // of a client of each run
    std::int64_t first_pass = 0;
    std::int64_t last_used = 0;
    bool is_past = false;  // the pass in hand has not all of its rates
  };
  using Seen = std::map<Key, Step>;

  bool is_worth_a_capture(const Seen::value_type& step) const;
  /// True where one more may be captured; drops an old graph where room is needed.
  bool find_room();
  bool capture(Seen::iterator of, const Call& call, std::size_t clients);

  Seen steps_;
  std::vector<Seen::iterator> with_graph_;
  std::map<std::vector<BatchRun>, std::int64_t> with_runs_;  // steps of the pass in hand
  std::int64_t pass_ = 0;
  std::int64_t taken_ = 0;
  std::int64_t captured_ = 0;
  bool possible_ = true;
};

}  // namespace fedhpc
