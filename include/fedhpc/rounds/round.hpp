#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/rounds/block.hpp"
#include "fedhpc/rounds/coupling.hpp"
#include "fedhpc/rounds/edge_tier.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/round_state.hpp"

namespace fedhpc {

/// One global round as a method sees it.
class Round {
 public:
  /// `state` outlives it.
  explicit Round(RoundState& state) : state_(state), edges_(state) {}

  std::int64_t number() const { return state_.number; }  ///< counted from 1
  const Cohort& cohort() const { return state_.cohort; }
  /// What train.lr is multiplied with in this round, by a schedule that counts rounds.
  double lr_factor() const { return state_.services.trainer.lr_factor(state_.number); }

  /// A weighted mean over the round's clients, of rows of `layout`; by default the model's.
  Mean mean(const LayoutPtr& layout = nullptr) { return Mean(state_.mean_services(layout)); }
  /// The same column by column, over the clients that have sent it.
  ColumnMean column_mean(const LayoutPtr& layout = nullptr) {
    return ColumnMean(state_.mean_services(layout));
  }

  /// What all participants weigh together.
  double total_weight(Weighting weighting) const;

  /// Goes through this rank's participants in blocks; their order and the blocks' width change
  /// nothing but speed and rounding.
  void each_block(const std::function<void(Block&)>& work);
  /// The same for this rank's clients that do not take part: for methods whose clients do something
  /// in every round. They exchange payloads and take time as participants do. `fedhpc plan` leaves
  /// them out.
  void each_absent_block(const std::function<void(Block&)>& work);

  /// The edge servers, for methods with a tier of them.
  EdgeTier& edges() { return edges_; }

  /// Algebra between the clients of all ranks; `ids`: those of this rank, in the order of its rows.
  /// Collective.
  Coupling coupling(std::span<const std::int64_t> ids);

  /// Independent work of the server, spread over the ranks: the results of work(0) to work(n - 1),
  /// on every rank, in host memory. Collective.
  std::vector<Tensor> on_server(std::int64_t n, const std::function<Tensor(std::int64_t)>& work);

  /// Sets a metric of the method's own to a value that is the same on every rank.
  void note(const std::string& metric, double value) { state_.notes.set(metric, value); }
  /// What the round has noted of a metric so far: the value it was set to, or the mean of what
  /// clients and edges have; NaN where there is nothing. The same on every rank. Collective.
  double noted(const std::string& metric);

 private:
  void each_block_of(std::vector<std::int64_t> clients, const std::function<void(Block&)>& work);

  RoundState& state_;
  EdgeTier edges_;
};

}  // namespace fedhpc
