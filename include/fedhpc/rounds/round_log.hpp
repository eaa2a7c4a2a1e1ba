#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fedhpc/rounds/partial_round.hpp"
#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {

/// Decides when a round is left between two blocks, so that a checkpoint can be written there.
struct LeavingRules {
  std::function<bool()> asked;    ///< true: this rank has been asked to stop
  double grace_seconds = 0;       ///< a round that ends within this time is not left
  double last_round_seconds = 0;  ///< the same on every rank; 0 where none is known
};

/// Logs what a round has done so far on this rank. A round that is left runs to its end without
/// blocks and without means; its result is thrown away. A round that goes on skips the blocks that
/// were done, and gets the means that were taken.
class RoundLog {
 public:
  /// Saves and restores ledger, clock and notes, which belong to the round.
  struct Rest {
    std::function<void(PartialRound&)> save;
    std::function<void(const PartialRound&)> restore;
  };

  /// `rules`: null for a round that is never left. `from`: where the round goes on, or null.
  RoundLog(const LeavingRules* rules, std::unique_ptr<PartialRound> from, Rest rest);

  /// Begins a pass through the participants of this rank and takes those off `clients` that are
  /// done. Returns false where none of it remains.
  bool begin_pass(std::vector<std::int64_t>& clients);
  /// Decides on leaving before the next block, with `left` blocks to come.
  bool leaves(std::size_t left);
  void add_done(std::span<const std::int64_t> clients);
  void end_pass();
  /// The number of the pass in hand, from 0.
  std::int64_t pass() const { return passes_; }
  /// Whether an earlier process has done a part of the round.
  bool goes_on() const { return goes_on_; }

  /// Registers a mean and returns its place.
  std::size_t open(const std::shared_ptr<SumContents>& contents);
  /// Returns compute(), the earlier result where the round goes on, or blank() where it is left.
  /// Collective among these ranks, as `compute` is.
  Tensor take(std::size_t place, Topology& topology, Among ranks,
              const std::function<Tensor()>& compute, const std::function<Tensor()>& blank);

  /// Agrees on whether the round is left. Every rank calls it before what only whole rounds may do.
  /// Collective.
  bool is_left(Topology& topology);

  /// The record of a round that is left.
  const PartialRound& partial() const { return partial_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool agree(Topology& topology, Among ranks);
  void leave();
  /// Begins the new part of a round that goes on.
  void go_on();
  double seconds_to_come(std::size_t blocks) const;

  const LeavingRules* rules_;
  std::unique_ptr<PartialRound> from_;  // null once all of it has been skipped
  Rest rest_;
  bool goes_on_ = false;
  bool left_ = false;
  std::int64_t passes_ = 0;
  std::vector<std::int64_t> done_;
  std::vector<PartialMean> means_;
  PartialRound partial_;
  Clock::time_point round_begin_ = Clock::now();
  Clock::time_point pass_begin_{};
  std::size_t blocks_of_pass_ = 0;  // done by this process
};

}  // namespace fedhpc
