#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/round_plan.hpp"
#include "fedhpc/training/options.hpp"
#include "fedhpc/training/stragglers.hpp"

namespace fedhpc {

/// What moves are planned by.
struct MovingRules {
  MovingRange range = MovingRange::Everywhere;
  bool count_costs = true;     ///< false: ranks' work alone decides
  double flops_of_sample = 1;  ///< of a sample's gradient
};

/// The costs of round `t` in samples gone through: moving counts what `store` keeps of a client, there
/// and back, and `sample_bytes` that go with it.
RoundCosts costs_of_round(std::int64_t t, const MovingRules& rules, const TrainOptions& training,
                          const Stragglers& stragglers, const Partition& partition,
                          const ClientStore& store,
                          const std::function<std::int64_t(const Move&)>& sample_bytes);

/// Lets participants of a round be trained away from home. Each rank plans the same moves
/// (plan_round), without a message. What is kept of a client in the store travels to the rank that
/// trains it, and home at the round's end. So do its samples, as they are stored, unless both ranks
/// read them in memory that they share, or they are made on demand.
class ClientMoves {
 public:
  /// What it works with, which outlives it. `shared` has the packed samples of all clients of a rank,
  /// for the ranks of its host; null: samples travel.
  struct Parts {
    Communicator& world;
    const Placement& placement;
    const Partition& partition;
    const TrainOptions& training;
    const Stragglers& stragglers;
    Shard& shard;
    ClientStore& store;
    const SharedMemory* shared;
  };

  /// Collective.
  ClientMoves(const Parts& parts, const MovingRules& rules);

  /// Plans the moves of these participants of round `t`, ascending ids, and sends off what has to
  /// move. `what`: the samples that the round reads. Every rank calls it; those that exchange nobody
  /// do not wait for each other, here or below.
  void begin(std::int64_t t, std::span<const std::int64_t> cohort, Shard::Packed what);
  /// The moves of all ranks.
  const std::vector<Move>& moves() const { return moves_; }
  /// Clients of other ranks that are trained here, ascending.
  const std::vector<std::int64_t>& guests() const { return guests_; }
  bool is_away(std::int64_t client) const;
  /// Lets messages get on.
  void advance();
  /// Waits for the guests, and seats them in the shard and in the store.
  void arrive();
  /// Sends guests home and waits for those who were away.
  void go_home();

  /// The bytes that this rank has handed to messages since the last call.
  std::int64_t lap_bytes();

 private:
  using Clients = std::vector<std::int64_t>;

  RoundCosts costs(std::int64_t t) const;
  bool sends_samples(int from, int to) const;
  void send(std::vector<Parcel> outgoing, std::vector<int> senders);

  Parts parts_;
  MovingRules rules_;
  std::vector<int> hosts_;                                  // of the ranks
  std::map<int, std::shared_ptr<const Shard>> neighbours_;  // of ranks that share memory

  // Of the round in hand:
  Clients cohort_;
  std::vector<Move> moves_;
  Shard::Packed what_ = Shard::Packed::All;
  std::map<int, Clients> leaving_;  // by the rank that trains them
  std::map<int, Clients> coming_;   // by home
  Clients guests_;
  Clients away_;
  std::unique_ptr<Delivery> delivery_;  // null: nothing is under way
  std::vector<int> senders_;
  std::vector<Tensor> arrived_;  // samples of guests lie there
  bool seated_ = true;
  std::int64_t bytes_ = 0;
};

}  // namespace fedhpc
