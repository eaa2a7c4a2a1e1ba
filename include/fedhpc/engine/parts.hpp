#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/context.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/preparation.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/io/digests.hpp"
#include "fedhpc/math/privacy_accountant.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/rounds/client_moves.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/device_row_memory.hpp"
#include "fedhpc/rounds/round.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/training/evaluator.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

struct Adaptation;
struct Resumption;

/// What a configuration names, built once and in order: data, model, method and what they work
/// with. Every rank makes one, and all of it lives as long as the run. Construction throws
/// ConfigError or DataError, the same on every rank, before anything is written. Collective.
struct Parts {
  /// `from`: the checkpoint to go on from; null for a new run.
  Parts(Config& config, Communicator& comm, const Resumption* from);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Algorithm& method() const { return *config.algorithm; }
  const Placement& placement() const { return topology->placement(); }
  bool has_edge_models() const { return method().traits().tiers == Tiers::ClientEdgeCloud; }
  Cohort draw(std::int64_t round) const;
  Cohort everybody() const;  ///< all clients, without edges
  /// The largest cohort a round can have, and the one that it has in the mean: the same unless each
  /// client is drawn by itself.
  std::int64_t cohort_limit() const;
  std::int64_t cohort_mean() const;
  /// The most participants of a round, of all its cohorts.
  std::int64_t participants_limit() const;
  /// Whether each client is drawn by itself, as privacy.noise is accounted for.
  bool draws_each() const;
  /// The participants with samples that such a round has in the mean.
  double expected_participants() const;
  /// The cohort of such a round.
  Cohort draw_each_apart(std::int64_t round) const;
  /// Local steps of any rank's client in a round in which it takes part and is not late.
  std::int64_t steps_of(std::int64_t client) const {
    return trainer->steps_for(partition.train.count(client));
  }
  RoundServices services(LocalTrainer& of_round);
  Adaptation adaptation_after(std::int64_t round) const;
  /// Label counts of clients first to first + count - 1 of all ranks, [count, K] int64, the same on
  /// every rank. Collective.
  Tensor label_histogram(std::int64_t first, std::int64_t count) const;

  Config& config;
  Communicator& comm;
  const Context context;
  std::unique_ptr<Dataset> dataset;
  Digests digests;
  std::string weights_digest;  ///< of the first model, where a file gives its weights
  std::string processors;      ///< the types of all ranks' processors, each once
  Partition partition;
  std::unique_ptr<Topology> topology;
  Preparation preparation = Standardize::None;  ///< of the samples
  std::unique_ptr<SharedMemory> shared;     ///< of the host's ranks, with their samples; or null
  std::unique_ptr<Shard> shard;             ///< this rank's clients
  std::unique_ptr<Shard> server_shard;      ///< this rank's part of the official test set, or null
  Partition validation;                     ///< the samples set aside, as test samples
  std::unique_ptr<Shard> validation_shard;  ///< this rank's clients' part of them, or null
  Loss loss;                                ///< what models are trained on and scored by
  std::unique_ptr<Model> model;
  Rows initial;                           ///< [1, P]
  std::unique_ptr<FactorMap> factor_map;  ///< null: weights in full
  Rows initial_factors;                   ///< [1, Q]
  std::unique_ptr<LocalTrainer> trainer;
  std::unique_ptr<Evaluator> evaluator;
  std::optional<DeviceRowMemory> device_memory;  ///< of the store, where there is a device
  std::optional<PinnedRowMemory> pinned_memory;
  std::unique_ptr<ClientStore> store;
  std::unique_ptr<ClientMoves> moves;   ///< null: every participant is trained at home
  std::unique_ptr<LinkMemory> links;    ///< of the method's payloads
  std::vector<Metric> own_metrics;      ///< series of the method's own
  std::set<std::string> noted;          ///< names by which the method may note values
  std::unique_ptr<OwnBuffers> buffers;  ///< of this rank's clients; null: they travel
  NetworkModel network;
  std::optional<Privacy> privacy;               ///< none: changes are taken as they arrive
  std::optional<PrivacyAccountant> accountant;  ///< where there is noise
  std::int64_t block_width = 1;
  Books books;  ///< of the round in hand

  /// All series of the run: those of its loss, then the method's own.
  std::vector<Metric> series() const;
  /// Those that some round will have a value of, as far as configuration, method and data tell.
  std::vector<Metric> series_to_come() const;
  /// Places the clients on so many ranks.
  Placement placed_on(int ranks) const;
  /// Whether participants may be trained away from home, on the ranks of `placed`.
  bool moves_clients(const Placement& placed) const;
  /// The ranks of `placed` between which they move.
  MovingRange moving_range(const Placement& placed) const;
  MovingRules moving_rules(const Placement& placed) const;  ///< once there is a model

 private:
  Placement open_data();
  /// Throw DataError, the same on every rank, where ranks have read different ones.
  void require_same_data() const;
  void require_same_model() const;
  /// Takes the checksum of the code, and looks at it in the same way.
  void identify_code();
  /// Names the ranks' types of processor, and warns where they differ. Collective.
  void identify_processors();
  std::unique_ptr<Shard> own_shard(std::int64_t held_bytes) const;
  /// The mean work of each client in a round, and what its home holds of it.
  std::vector<ClientLoad> loads() const;
  /// Makes memory for samples that the ranks of a host share, where clients move. Collective.
  void share_samples();
  void load_samples();
  void start_moves();
  void open_model(const Resumption* from);
  /// Takes the first weights; returns whether a file has given them.
  bool open_weights(const Resumption* from);
  /// Data and initial rows go where clients train.
  void move_to_device();
  /// Throws ConfigError for a series of the method that has no name of its own.
  void require_different_series() const;
  /// Warns of numbers that no client or edge has, of clients without samples, of a rate that never changes.
  void tell_unused_numbers() const;
  void open_privacy();
  /// The most participants of a round that are drawn together: of all, or of an edge.
  std::int64_t most_together() const;
  /// Throws ConfigError where late clients could not train less than others. Warns where they could
  /// not stay away, and of clients that batch norm leaves without steps.
  void check_steps() const;
  void open_store();
  std::int64_t chosen_block_width(const Resumption* from);
  std::int64_t free_device_bytes() const;  ///< this rank's part of what its card has free

  std::int64_t device_sharers_ = 1;  // ranks with this one's card
};

/// What the width of a block depends on beside the model and the data.
struct BlockNeeds {
  std::int64_t participants = 1;       ///< of a round, on all ranks
  std::int64_t free_device_bytes = 0;  ///< that this rank may take; of a device only
};

/// The width of a block that suits the machine: on a CPU the widest one whose rows and activations fit into a
/// core's own cache, on a device that of the fewest equal blocks which its memory holds; a function of sizes
/// alone, and the same on every rank. Collective.
std::int64_t choose_block_width(Communicator& comm, const LocalTrainer& trainer,
                                const Rows& initial, const BlockNeeds& needs);

}  // namespace fedhpc
