#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/divergence.hpp"
#include "fedhpc/engine/metrics.hpp"
#include "fedhpc/io/results_writer.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/device_row_memory.hpp"
#include "fedhpc/rounds/round.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/training/evaluator.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

struct Adaptation;
struct Resumption;

/// What a rank asks for after a round. It happens if any rank asks for it.
struct Wish {
  bool stop = false;
  bool checkpoint = false;
};

/// What is known after one round. Complete on rank 0; other ranks see the model and the cohort
/// only.
struct RoundReport {
  std::int64_t round = 0;
  bool evaluated = false;
  Wish agreed = {};                 ///< over all ranks; a run stops after the round if asked to
  bool left = false;                ///< the round after this one was left between two blocks
  double train_samples = 0;         ///< processed in local steps; 0 when nobody drawn has any
  std::int64_t diverged_since = 0;  ///< the round in which it began, known to all ranks; 0: not
  RoundMetrics metrics{};
  const std::vector<std::int64_t>* cohort = nullptr;
  const PersonalMetrics* personal = nullptr;
};

/// Takes some clients' models, row by row.
using VisitModels = std::function<void(std::span<const std::int64_t> clients, const Rows& models)>;

/// What /model holds: the global model [1, P] and the factors behind it [1, Q]; values undefined
/// where a method has none.
struct ModelRecord {
  Rows global;
  Rows factors;

  /// Those that are there by the name of their group below /model: "global", "factors" (without
  /// what passes through from the global model).
  std::vector<std::pair<std::string, std::vector<NamedTensor>>> parts() const;
  std::int64_t bytes() const;
};

/// One round of one participant: payload bytes, also of its edge (0 without edge models), and what
/// a local step of it takes, and a sample that the step visits, in all trainings of a round
/// together.
struct PlannedRound {
  std::int64_t up_per_client = 0;
  std::int64_t down_per_client = 0;
  std::int64_t up_per_edge = 0;
  std::int64_t down_per_edge = 0;
  double seconds_per_step = 0;
  double seconds_of_evaluation = 0;       ///< of all clients, on the slowest rank
  double gradient_values_per_sample = 0;  ///< P for one gradient of all weights
};

/// One run: everything a configuration names, built in order, and the loop over its rounds. Every
/// rank makes one. Construction throws ConfigError or DataError, the same on every rank, before
/// anything is written.
class Experiment {
 public:
  /// `from`: the checkpoint to go on from; DataError if it is not one of this model and these data.
  Experiment(Config& config, Communicator& comm, const Resumption* from = nullptr);

  /// What the method does once before the first round, unless it has been done: `run` sees to it
  /// otherwise. Nothing for a run that goes on. Collective.
  void prepare();
  /// Runs all rounds, or those after the checkpoint; after each, `observe` is called on every rank.
  /// `ask` gives this rank's wishes after a round, which the ranks agree on in the round's own
  /// reduction.
  /// A round that would take longer than run.grace_seconds after `stop_asked` is left between two
  /// blocks, if the method can do so: the state is then that before the round, beside what
  /// partial() says was done of it, and the last report is one of the round before.
  void run(
      const std::function<void(const RoundReport&)>& observe,
      const std::function<Wish(std::int64_t)>& ask = [](std::int64_t) { return Wish{}; },
      const std::function<bool()>& stop_asked = [] { return false; });
  /// What this rank has done of the round that was left; null if none was.
  const PartialRound* partial() const { return partial_.get(); }
  /// The next round has been begun: to be called before run().
  void go_on_inside(std::unique_ptr<PartialRound> partial) { partial_ = std::move(partial); }
  /// Walks over all that the next round depends on.
  void visit_state(StateVisitor& state);
  /// The model global_accuracy would evaluate now, with its factors. Collective.
  ModelRecord current_model() const;

  const Config& config() const { return config_; }
  const FactorMap* factor_map() const { return factor_map_.get(); }  ///< null: weights in full
  const Dataset& dataset() const { return *dataset_; }
  const Partition& partition() const { return partition_; }
  const Topology& topology() const { return *topology_; }
  const Placement& placement() const { return topology_->placement(); }
  const Shard& shard() const { return *shard_; }
  const Model& model() const { return *model_; }
  /// Before round 1: the global model; where a method has none, what every client starts from.
  const ModelRecord& initial() const { return initial_record_; }
  /// What /model holds before round 1: in shapes what it holds later.
  const ModelRecord& first_record() const { return first_record_; }
  /// The model global_accuracy evaluates, as of the last evaluation; undefined before.
  const ModelRecord& last_evaluated() const { return evaluated_; }
  /// Series of the method's own, in the order of RoundMetrics::own.
  const std::vector<RoundMetric>& own_metrics() const { return own_metrics_; }
  std::int64_t block_width() const { return block_width_; }
  /// The largest cohort a round can have.
  std::int64_t cohort_limit() const;
  /// The most participants of a round, of all its cohorts.
  std::int64_t participants_limit() const;
  /// Hands all clients' personal models to `visit` on rank 0, some at a time, in no particular
  /// order; nothing for a method that has none. Collective.
  void gather_personal_models(const VisitModels& visit) const;
  /// Local steps of any rank's client in a round it takes part in.
  std::int64_t steps_of(std::int64_t client) const {
    return trainer_->steps_for(partition_.train.count(client));
  }
  /// What the ledger will book, found by rounds with a single participant, that of the most
  /// samples, which takes one local step: exact for payloads whose size does not depend on the
  /// data. Moves the algorithm's state, so that nothing but plans may follow. Collective.
  PlannedRound plan_round();
  /// Label counts of clients first to first + count - 1 of all ranks, [count, K] int64, the same on
  /// every rank. Collective.
  Tensor label_histogram(std::int64_t first, std::int64_t count) const;
  /// Estimated bytes this rank holds: data, models in hand, activations, accumulators.
  std::int64_t memory_bytes() const;

 private:
  Placement open_data();
  void open_model(const Resumption* from);
  void open_weights(const Resumption* from);
  /// Data and initial rows go where clients train.
  void move_to_device();
  Summation summation() const;
  std::int64_t rows_until_summed() const;  ///< bytes
  std::int64_t bytes_in_hand() const;      ///< of the method's rows, for each client in hand
  std::int64_t free_device_bytes() const;  ///< this rank's part of what its card has free
  Cohort draw(std::int64_t round) const;
  RoundServices services(LocalTrainer& trainer);
  Adaptation adaptation_after(std::int64_t round) const;
  /// The ledger's entries over all ranks; this rank's wish becomes what all have agreed on.
  /// Collective.
  std::array<std::int64_t, Ledger::kEntries> booked(Wish& wish);
  /// All that the next round depends on but for what lies with the clients.
  void visit_common_state(StateVisitor& state);
  void evaluate(RoundReport& report);
  /// Fills the validation_* metrics: from the global model's score, if there is such a model, and
  /// from every client's score of its own [N].
  void note_validation(const Score& global, const std::vector<Score>& own,
                       RoundMetrics& metrics) const;
  /// All clients' scores in order of id, on rank 0. Collective.
  std::vector<Score> gather_by_client(const std::vector<Score>& mine);
  /// Takes in the losses of a round.
  void look_for_divergence(const RoundReport& report);
  /// Seconds that an evaluation takes on this rank, by that of a few clients.
  double seconds_of_evaluation() const;
  double seconds_to_score_a_sample(const Shard& shard) const;
  void total(Round& round, const Wish& wish, RoundReport& report);
  /// Values of the method's own series. Collective.
  std::vector<double> noted_by(Round& round) const;

  Config& config_;
  Communicator& comm_;
  at::ScalarType type_;
  at::Device device_;
  std::unique_ptr<Dataset> dataset_;
  Partition partition_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Shard> server_shard_;      // this rank's part of the official test set
  Partition validation_;                     // the samples set aside, as test samples
  std::unique_ptr<Shard> validation_shard_;  // this rank's clients' part of them, if there are any
  std::unique_ptr<Model> model_;
  Rows initial_;
  std::unique_ptr<FactorMap> factor_map_;  // null: weights in full
  Rows initial_factors_;
  ModelRecord first_record_;
  ModelRecord initial_record_;
  ModelRecord evaluated_;
  std::vector<RoundMetric> own_metrics_;
  std::unique_ptr<LocalTrainer> trainer_;
  std::optional<ProductsInOrder> products_in_order_;  // on a device, when reproducible
  std::unique_ptr<Evaluator> evaluator_;
  std::int64_t block_width_ = 1;
  std::int64_t device_sharers_ = 1;  // ranks with this one's card
  std::int64_t rounds_done_ = 0;
  bool prepared_ = false;
  double last_round_seconds_ = 0;          // on rank 0, known to all; 0 before the first round
  std::optional<Divergence> divergence_;   // on rank 0
  std::int64_t diverged_since_ = 0;        // on rank 0, known to all
  std::unique_ptr<PartialRound> partial_;  // of the round after rounds_done_
  std::optional<DeviceRowMemory> device_memory_;  // of the store, where there is a device
  std::optional<PinnedRowMemory> pinned_memory_;
  std::unique_ptr<ClientStore> store_;
  std::unique_ptr<OwnBuffers> buffers_;  // of this rank's clients; null: they travel
  Ledger ledger_;
  NetworkModel network_;
  Stopwatch train_watch_;
  Stopwatch aggregate_watch_;
  Stopwatch evaluate_watch_;
  PersonalMetrics personal_;
};

/// Reads model.init_file: /model/init/global, else /model/global. Throws DataError naming the file
/// and the parameter that is missing, superfluous or of another shape.
Rows read_initial_model(const std::string& path, const LayoutPtr& layout, at::ScalarType type);

/// Replaces the factors in `row` [1, Q] by those that model.init_file holds: of
/// /model/init/factors, else /model/factors. Throws DataError for one of another shape.
void read_initial_factors_(const std::string& path, const Rows& row);

/// The parameters of a row [1, P] as tensors in their own shapes.
std::vector<NamedTensor> parameters_of(const Rows& row);

/// What the width of a block depends on beside the model and the data.
struct BlockNeeds {
  std::int64_t participants = 1;       ///< of a round, on all ranks
  std::int64_t bytes_per_client = 0;   ///< of the method's rows of a client in hand
  std::int64_t free_device_bytes = 0;  ///< that this rank may take; of a device only
};

/// The width of a block that suits the machine: on a CPU the widest one whose rows and activations
/// fit into a core's own cache, on a device the widest that its memory holds; a function of sizes
/// alone, and the same on every rank. Collective.
std::int64_t choose_block_width(Communicator& comm, const LocalTrainer& trainer,
                                const Rows& initial, const BlockNeeds& needs);

}  // namespace fedhpc
