#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/data/batches.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/local_step.hpp"
#include "fedhpc/training/local_work.hpp"
#include "fedhpc/training/options.hpp"
#include "fedhpc/training/planned_batches.hpp"
#include "fedhpc/training/step_graphs.hpp"

namespace fedhpc {

/// Trains the models of a block of clients in lockstep: step s of all its clients, then step s + 1.
/// Clients whose batches have equal size at a step and stand side by side form one run, one call of
/// each layer; every client sees exactly the batches it would see alone. Keeps its buffers between
/// calls. Where the shard's device is not the host, rows are there too, a pass is planned on the
/// host before its first step, and nothing waits for the device but what `take` itself makes wait,
/// or who asks for a loss: the host plans a pass while the device is at the one before. Training
/// images are augmented as the shard says, step s of a pass with crop_key(seed, round, client,
/// pass, s).
class LocalTrainer {
 public:
  LocalTrainer(const Model& model, const Shard& shard, const TrainOptions& options,
               std::uint64_t seed);

  /// Local steps client `client` (an id of the shard) takes in one round; 0 without training
  /// samples, and with batch norm if its only batches would be of one sample.
  std::int64_t steps(std::int64_t client) const { return steps_for(shard_.train_count(client)); }
  /// The same of any client with this many training samples.
  std::int64_t steps_for(std::int64_t samples) const;

  /// Batches of an epoch of so many samples, those included that no step can be taken on.
  std::int64_t batches_of(std::int64_t samples) const {
    return BatchCursor::num_batches_per_epoch(samples, options_.batch_size, SingleBatches::Keep);
  }

  /// Trains row c of `rows` [C, P] on the data of clients[c], in place, by the rule of the
  /// options on the gradient of each batch's mean loss, from a fresh optimizer. Batches are those
  /// of (round, work.pass). Plain SGD is fused into the gradient products; every other rule costs
  /// an arena of gradients and one more pass over the rows in each step. With work.map `rows` are
  /// [C, Q], and a step also composes the weights and takes the gradient back. Gives the statistics
  /// of each client, [C].
  std::vector<TrainStatistics> train_(Rows& rows, std::span<const std::int64_t> clients,
                                      std::int64_t round, const LocalWork& work);

  /// Goes through the local steps of these clients, `take` making each; `pass` names their batches
  /// as in train_. What `take` moves is its own business. Gives the statistics of each client, [C].
  std::vector<TrainStatistics> each_step(std::span<const std::int64_t> clients, std::int64_t round,
                                         std::int64_t pass, at::ScalarType type,
                                         const std::function<void(LocalStep&)>& take,
                                         Steps steps = Steps::Any);

  /// A share of a client's n training samples, 0 < of <= 1: max(1, floor(of n + 1/2)) drawn ones,
  /// or a slice of max(1, floor(of n)).
  struct Share {
    double of = 0;
    Sampled sampled = Sampled::Drawn;
    Share(double part, Sampled how = Sampled::Drawn) : of(part), sampled(how) {}  // NOLINT
  };

  /// Goes through a share of these clients' training samples once, `take` making something of each
  /// batch. Gives the statistics of each client, [C].
  std::vector<TrainStatistics> each_batch(std::span<const std::int64_t> clients, std::int64_t round,
                                          std::int64_t pass, Share share, at::ScalarType type,
                                          const std::function<void(LocalStep&)>& take);
  /// How many batches that are of client `client`.
  std::int64_t batches(std::int64_t client, Share share) const;
  /// From now on each_batch() takes no more than so many: of a plan, which measures single steps.
  void stop_passes_after(std::int64_t batches) { most_batches_ = batches; }

  /// Takes `steps` steps (0: as a local training) of `optimizer`, started afresh, from row c of
  /// `rows` [C, P] on the training samples of clients[c], in place, for the evaluation after a
  /// round: batches of Purpose::Evaluate and crops of pass 2^31, so that no training sees them. A
  /// client that cannot train stays.
  void adapt_(const Rows& rows, std::span<const std::int64_t> clients, std::int64_t round,
              std::int64_t steps, RowOptimizer& optimizer);
  /// The same by as many steps as a local training takes, with its optimizer.
  void adapt_(const Rows& rows, std::span<const std::int64_t> clients, std::int64_t round);

  /// What train.lr is multiplied with in a round, by a schedule that counts rounds.
  double lr_factor(std::int64_t round) const { return options_.lr_factor(round - 1); }
  /// From now on clients are at the first local training of a round, or at this one of so many that
  /// follow one another: what a schedule that counts epochs has to know.
  void at_training(std::int64_t number = 0, std::int64_t of = 1) {
    training_ = number;
    trainings_ = of;
  }

  /// How many local steps have been captured as graphs: on a device only.
  std::int64_t captured_steps() const { return graphs_.captured() + pass_graphs_.captured(); }
  /// Whether steps are captured where they can be, as they are at first; graphs that there are stay
  /// for when they are wanted again.
  void capture_steps(bool wanted) { capture_wanted_ = wanted; }

  /// Bytes for C clients in hand beside their rows: activations and gradients between layers, and
  /// the arena and optimizer states where the rule needs them.
  std::int64_t workspace_bytes(std::int64_t clients, at::ScalarType type) const;

 private:
  /// Names the batches of local steps.
  struct Pass {
    std::int64_t round = 1;
    std::int64_t number = 0;
    Purpose purpose = Purpose::Batches;
    std::int64_t steps = 0;  ///< of each client that can train; 0: as train.* say
    Share share = 0;         ///< above 0: once through this share of the samples instead
  };

  /// One client on its way through a pass.
  struct ClientPass {
    std::int64_t client = 0;
    std::int64_t steps = 0;
    BatchCursor batches;
    std::int64_t taken = 0;                        // batches, the last of which is
    std::span<const std::int64_t> positions = {};  // in the client's list
  };

  /// Batch norm cannot train on a batch of one.
  SingleBatches singles() const;
  std::int64_t batch_capacity() const;
  void reserve(std::int64_t clients, at::ScalarType type);
  /// How many of a client's training samples that share is.
  std::int64_t visited(std::int64_t client, Share share) const;
  std::int64_t steps_of(std::int64_t client, const Pass& pass) const;
  /// What train.lr is multiplied with at step `step` of a client.
  double rate_of(std::int64_t client, const Pass& pass, std::int64_t step) const;
  std::vector<ClientPass> start_passes(std::span<const std::int64_t> clients,
                                       const Pass& pass) const;
  /// The batch of step `step` of a client, with its crops where images are augmented; empty if it
  /// has run out.
  Batch next_batch(const Shard& shard, ClientPass& client_pass, const Pass& pass,
                   std::int64_t step) const;
  /// A shard that holds the training samples of these clients: that of all, or one made on demand,
  /// which is kept for the next pass of the same clients.
  const Shard& samples_of(std::span<const std::int64_t> clients);
  /// Gathers the batches of step `step` of every client that has one; gives them as runs of equal
  /// size.
  std::vector<BatchRun> gather_step(const Shard& shard, std::vector<ClientPass>& passes,
                                    const Pass& pass, std::int64_t step);
  std::vector<TrainStatistics> each_step(std::span<const std::int64_t> clients, const Pass& pass,
                                         at::ScalarType type,
                                         const std::function<void(LocalStep&)>& take, Steps steps);
  /// The same on a device. Steps that are alike are captured: for this pass, or, where `repeated`
  /// names them without their runs, for those to come as well.
  std::vector<TrainStatistics> each_step_on_device(std::span<const std::int64_t> clients,
                                                   const Pass& pass, at::ScalarType type,
                                                   const std::function<void(LocalStep&)>& take,
                                                   Steps steps, const StepGraphs::Key* repeated);
  /// Training of whole models on a device: steps are captured.
  std::vector<TrainStatistics> train_on_device_(Rows& rows, std::span<const std::int64_t> clients,
                                                const Pass& pass, const LocalWork& work);
  /// Waits for the pass before the last one, if need be: what is enqueued holds memory.
  void stay_near_device();
  std::int64_t most_steps(std::span<const std::int64_t> clients, const Pass& pass) const;
  static Pass pass_of_draw(const Pass& pass, std::int64_t draw);

  static constexpr std::int64_t kPassesAhead = 2;

  const Model& model_;
  const Shard& shard_;
  const TrainOptions& options_;
  std::uint64_t seed_;
  std::int64_t training_ = 0;
  std::int64_t trainings_ = 1;  // one after the other in a round
  std::int64_t most_batches_ = std::numeric_limits<std::int64_t>::max();
  std::optional<Shard> in_hand_;  // of a shard on demand: the clients trained last
  StepWorkspace workspace_;
  PlannedBatches planned_;                              // on a device, as are
  std::deque<std::shared_ptr<DeferredNumbers>> ahead_;  // losses of the last passes
  StepGraphs graphs_;
  StepGraphs pass_graphs_;  // of the pass under way
  bool capture_wanted_ = true;
  Rows graph_rows_;  // what captured steps move, and their centres
  Rows graph_centres_;
  RowOptimizer optimizer_;
  std::int64_t largest_client_;             // training samples
  std::optional<RowOptimizer> of_factors_;  // of the map trained through last
};

}  // namespace fedhpc
