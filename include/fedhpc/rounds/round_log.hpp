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

/// When a round is left between two blocks, so that a checkpoint can be written there.
struct LeavingRules {
  std::function<bool()> asked;    ///< whether this rank has been asked to stop
  double grace_seconds = 0;       ///< a round that ends within this time is not left
  double last_round_seconds = 0;  ///< the same on every rank; 0 where none is known
};

/// What a round has done so far on this rank. A round that is left runs to its end without blocks
/// and without means: what comes out is thrown away. A round that goes on skips the blocks that
/// were done, and gets the means that were taken.
class RoundLog {
 public:
  /// Ledger, clock and notes, which belong to the round.
  struct Rest {
    std::function<void(PartialRound&)> save;
    std::function<void(const PartialRound&)> restore;
  };

  /// `rules`: null for a round that is never left. `from`: where to go on, or null.
  RoundLog(const LeavingRules* rules, std::unique_ptr<PartialRound> from, Rest rest);

  /// Begins a way through the participants of this rank; takes those off `clients` that are done.
  /// False where none of it is to be done.
  bool begin_pass(std::vector<std::int64_t>& clients);
  /// Whether to leave before the next block, `left` of them being to come.
  bool leaves(std::size_t left);
  void add_done(std::span<const std::int64_t> clients);
  void end_pass();

  /// Takes note of a mean; gives its place.
  std::size_t open(const std::shared_ptr<SumContents>& contents);
  /// What `compute` gives, a collective among these ranks; what it gave before where the round goes
  /// on, and `blank()` where the round is left. Collective among these ranks.
  Tensor take(std::size_t place, Topology& topology, Among ranks,
              const std::function<Tensor()>& compute, const std::function<Tensor()>& blank);

  /// Agrees whether the round is left; to be called on every rank before what only whole rounds
  /// may do. Collective.
  bool is_left(Topology& topology);

  /// Of a round that is left.
  const PartialRound& partial() const { return partial_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool agree(Topology& topology, Among ranks);
  void leave();
  /// From here on the round does new things.
  void go_on();
  double seconds_to_come(std::size_t blocks) const;

  const LeavingRules* rules_;
  std::unique_ptr<PartialRound> from_;  // null once all of it has been skipped
  Rest rest_;
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
