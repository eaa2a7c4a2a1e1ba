#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

/// How an algorithm weighs its clients (algorithm.weighting).
enum class Weighting { Samples, Uniform };

/// What a round works with on this rank. Lives as long as the experiment.
struct RoundServices {
  Communicator& comm;
  const Model& model;
  const Shard& shard;
  LocalTrainer& trainer;
  Ledger& ledger;
  Stopwatch& train_watch;
  Stopwatch& aggregate_watch;
  at::ScalarType type;
  std::int64_t block_width;
};

class Round;

/// C clients in hand: some participants of a round on this rank, one row each.
class Block {
 public:
  std::span<const std::int64_t> clients() const { return clients_; }  ///< ids, [C]
  std::int64_t count() const { return static_cast<std::int64_t>(clients_.size()); }

  /// What every client receives of a model [1, P]: C copies. Books one dense payload per client.
  Rows download(const Rows& model);

  /// Local training of every client from its row of `start` [C, P]; gives the trained rows. `work`
  /// names the pass whose batches are used and adds a proximal term. Counts into train_loss.
  Rows train(const Rows& start, const LocalWork& work = {});

  /// What the cloud receives of the clients' rows [C, P]. Books one dense payload per client.
  Rows upload(const Rows& rows);

  /// The weight of each client, [C]: its training samples, or 1 (0 without training samples).
  std::span<const double> weights(Weighting weighting);

 private:
  friend class Round;
  Block(Round& round, std::span<const std::int64_t> clients) : round_(round), clients_(clients) {}

  Round& round_;
  std::span<const std::int64_t> clients_;
  std::vector<double> weights_;
};

/// One global round as an algorithm sees it.
class Round {
 public:
  /// `cohort`: ids of all participants of all ranks, ascending.
  Round(RoundServices& services, std::int64_t number, std::vector<std::int64_t> cohort);

  std::int64_t number() const { return number_; }  ///< counted from 1
  const std::vector<std::int64_t>& cohort() const { return cohort_; }
  const TrainStatistics& statistics() const { return statistics_; }  ///< of this rank

  /// A weighted mean over the round's clients, of rows of the model's layout.
  Mean mean();

  /// Goes through this rank's participants in blocks; their order and the blocks' width change
  /// nothing but speed and rounding.
  void each_block(const std::function<void(Block&)>& work);

 private:
  friend class Block;

  RoundServices& services_;
  std::int64_t number_;
  std::vector<std::int64_t> cohort_;
  TrainStatistics statistics_;
};

}  // namespace fedhpc
