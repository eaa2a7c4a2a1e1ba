#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/rounds/client_moves.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/privacy.hpp"
#include "fedhpc/rounds/round_log.hpp"
#include "fedhpc/rounds/round_notes.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/rounds/wire.hpp"
#include "fedhpc/training/evaluator.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

/// What is written down of a round on this rank.
struct Books {
  Ledger ledger;
  Stopwatch train_watch;
  Stopwatch aggregate_watch;
  Stopwatch evaluate_watch;
};

/// What a round works with on this rank. Lives as long as the experiment.
struct RoundServices {
  const Context& context;
  Topology& topology;
  const Partition& partition;
  const Model& model;
  const Shard& shard;
  LocalTrainer& trainer;
  Evaluator& evaluator;
  const NetworkModel& network;
  Books& books;
  std::int64_t block_width;
  LinkMemory* links = nullptr;       ///< of a method that opened it
  OwnBuffers* buffers = nullptr;     ///< null: they travel with the models
  const Privacy* privacy = nullptr;  ///< null: changes are taken as they arrive
  double expected = 0;  ///< participants by which a private sum is divided; 0: as many as there are
  bool absent_idle = false;                       ///< of a plan, which looks at participants alone
  const LeavingRules* leaving = nullptr;          ///< null: rounds are never left
  ClientMoves* moves = nullptr;                   ///< null: everybody is trained at home
  const std::set<std::string>* series = nullptr;  ///< what may be noted; null: anything
};

/// What is known of a round on this rank while it runs, and what came out of it. The engine makes
/// it and reads it; a method sees it through Round, its edges and its blocks.
class RoundState {
 public:
  /// Whether models are scored after a round, and during it.
  enum class Evaluated { No, Yes };

  /// Round `t`. `drawn`: the participants of all ranks. `from`: what was done of the round when it
  /// was left.
  RoundState(RoundServices& rank, std::int64_t t, Cohort drawn, Evaluated scored,
             std::unique_ptr<PartialRound> from = nullptr);
  RoundState(const RoundState&) = delete;  // its log knows where it lies
  RoundState& operator=(const RoundState&) = delete;

  RoundServices& services;
  const std::int64_t number;  ///< counted from 1
  Cohort cohort;
  const Evaluated evaluated;
  std::int64_t edge_round = 0;  ///< the one in hand
  bool absent_act = false;      ///< the method has asked for those that take no part
  bool coupled = false;         ///< it has worked between clients
  Wire wire;
  /// One entry per client of this rank and local training, or pass of each_batch().
  std::vector<TrainStatistics> statistics;
  RoundNotes notes;
  SentChanges sent;
  RoundLog log;

  /// The participants trained on this rank: its own, then guests.
  std::vector<std::int64_t> here() const;
  /// Whether a client's home is here and it is not away.
  bool stays(std::int64_t client) const;
  /// Puts others in the place of the participants, between two edge rounds: those that are away go
  /// home, and the new ones where they are trained.
  void replace_cohort(std::vector<std::int64_t> clients);
  /// Brings everybody home, once the method is done. Ranks wait for those that had their clients.
  void go_home();

  /// What a client weighs.
  double weight_of(std::int64_t client, Weighting weighting) const;
  /// The weights of all participants, of all ranks, summed.
  double total_weight(Weighting weighting) const;
  /// The participant in whose row the noise of a sum stands: the first one that has samples.
  std::optional<std::int64_t> noise_bearer() const;
  /// Throws ConfigError where participants have sent no change and privacy.* count on one; to be
  /// called when the method is done. Collective.
  void check_private() const;
  /// Throws ConfigError where clients have sent a change before the first round and privacy.* are
  /// set; to be called when that is done. Collective.
  void check_unsent() const;
  /// For a mean of rows of `layout`; null: the model's.
  MeanServices mean_services(const LayoutPtr& layout = nullptr);

  /// Seconds of the round on the simulated network, NaN without a model of it; to be called when
  /// the method is done. Collective.
  double simulated_seconds();
  /// Whether the round was left between two blocks, so that nothing that came out of it counts; to
  /// be called when the method is done. Collective.
  bool is_left() { return log.is_left(services.topology); }

 private:
  void save(PartialRound& partial) const;
  void restore(const PartialRound& partial);
};

}  // namespace fedhpc
