#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/comm/place.hpp"
#include "fedhpc/rounds/block.hpp"
#include "fedhpc/rounds/coupling.hpp"
#include "fedhpc/rounds/edge_tier.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/round_state.hpp"

namespace fedhpc {

/// Goes through clients of this rank in blocks, one after the other.
class Blocks {
 public:
  enum class Work { All, None };

  /// `state` outlives it. Work::None: there is nothing to be done for these clients here. Guests
  /// come last, when they have arrived, and share no block with others.
  Blocks(RoundState& state, std::vector<std::int64_t> clients, Work work = Work::All);
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  /// Ends the work on the block before and returns the next one, which lives as long as its work;
  /// null after the last.
  Block* next();
  /// Whether next() has returned null: a method that stops before leaves clients without their work.
  bool is_over() const { return over_; }

 private:
  RoundState& state_;
  std::vector<std::int64_t> clients_;
  std::size_t first_ = 0;  // of those to come
  std::size_t own_ = 0;    // so many are no guests
  std::optional<AtTask> training_;
  std::optional<Block> block_;
  bool over_ = false;
};

/// A method sees one global round through this class.
class Round {
 public:
  /// `state` outlives it.
  explicit Round(RoundState& state) : state_(state), edges_(state) {}

  std::int64_t number() const { return state_.number; }  ///< counted from 1
  const Cohort& cohort() const { return state_.cohort; }
  /// The factor on train.lr in this round, from a schedule that counts rounds.
  double lr_factor() const { return state_.services.trainer.lr_factor(state_.number); }

  /// Starts a weighted mean of rows of `layout` (null: the model's) over the round's clients.
  Mean mean(const LayoutPtr& layout = nullptr) { return Mean(state_.mean_services(layout)); }
  /// Starts a mean of each column over the clients that have sent it.
  ColumnMean column_mean(const LayoutPtr& layout = nullptr) {
    return ColumnMean(state_.mean_services(layout));
  }

  /// The weights of all participants, of all ranks, summed.
  double total_weight(Weighting weighting) const { return state_.total_weight(weighting); }
  /// |S|/N: the participants' share of the clients, both without those that have no training
  /// samples.
  double share_of_clients() const;

  /// Encodes a row [1, P] once, for all clients, who receive it by Block::download. Books nothing.
  Received for_everybody(const Rows& row, const Codec& codec) const {
    return state_.wire.for_everybody(row, codec);
  }

  /// Goes through this rank's participants in blocks. Their order and the blocks' width change
  /// nothing but speed and rounding.
  void each_block(const std::function<void(Block&)>& work);
  Blocks blocks();
  /// Goes through this rank's clients that do not take part: some methods have work for them in
  /// every round. They exchange payloads and take time as participants do. `fedhpc plan` leaves
  /// them out.
  void each_absent_block(const std::function<void(Block&)>& work);
  Blocks absent_blocks();

  /// The edge servers, for methods that have a tier of them.
  EdgeTier& edges() { return edges_; }

  /// Starts algebra between the clients of all ranks. `ids` names those of this rank, in the order
  /// of its rows. Collective.
  Coupling coupling(std::span<const std::int64_t> ids);

  /// Independent work of the server, spread over the ranks: the results of work(0) to work(n - 1),
  /// on every rank, in host memory. Collective.
  std::vector<Tensor> on_server(std::int64_t n, const std::function<Tensor(std::int64_t)>& work);

  /// Sets one of the method's own metrics to a value that is the same on every rank. Throws Error,
  /// as all notes do, for a metric that the method has not added.
  void note(const std::string& metric, double value) { state_.notes.set(metric, value); }
  /// Returns what the round has noted of a metric so far: its set value, or the mean over clients
  /// and edges. NaN where nothing is noted. Every rank gets the same value. Collective.
  double noted(const std::string& metric);

 private:
  RoundState& state_;
  EdgeTier edges_;
};

}  // namespace fedhpc
