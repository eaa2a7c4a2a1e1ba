#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/batch_source.hpp"
#include "fedhpc/training/local_step.hpp"
#include "fedhpc/training/local_work.hpp"
#include "fedhpc/training/options.hpp"
#include "fedhpc/training/step_taker.hpp"

namespace fedhpc {

/// Trains the models of a block of clients in lockstep: step s of all its clients, then step s + 1.
/// Clients whose batches have equal size at a step and stand side by side form one run, one call of
/// each layer; every client sees exactly the batches it would see alone. Keeps its buffers between
/// calls. Rows are of the context's type and on its device, as the shard's samples are. Nothing
/// waits for a device but what `take` itself makes wait, or who asks for a loss.
class LocalTrainer {
 public:
  using Share = BatchSource::Share;

  LocalTrainer(const Model& model, const Shard& shard, const TrainOptions& options,
               const Context& context);

  /// Local steps client `client` (an id of the shard) takes in a round; 0 without training samples,
  /// and with batch norm if its only batches would be of one sample.
  std::int64_t steps(std::int64_t client, std::int64_t round) const {
    return stragglers().steps(steps_for(shard_.train_count(client)), client, round);
  }
  /// The same of any client with this many training samples that is not late.
  std::int64_t steps_for(std::int64_t samples) const { return batches_.steps_for(samples); }

  const Stragglers& stragglers() const { return batches_.stragglers(); }

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
  /// as in train_, and `count` how many they are; 0: as train.* say. What `take` moves is its own
  /// business. Gives the statistics of each client, [C].
  std::vector<TrainStatistics> each_step(std::span<const std::int64_t> clients, std::int64_t round,
                                         std::int64_t pass,
                                         const std::function<void(LocalStep&)>& take,
                                         Steps steps = Steps::Any, std::int64_t count = 0);

  /// Goes through a share of these clients' training samples once, `take` making something of each
  /// batch. Gives the statistics of each client, [C].
  std::vector<TrainStatistics> each_batch(std::span<const std::int64_t> clients, std::int64_t round,
                                          std::int64_t pass, Share share,
                                          const std::function<void(LocalStep&)>& take);
  /// How many batches that are of client `client`.
  std::int64_t batches(std::int64_t client, Share share) const {
    return batches_.batches(client, share);
  }
  /// From now on each_batch() takes no more than so many: of a plan, which measures single steps.
  void stop_passes_after(std::int64_t batches) { batches_.stop_passes_after(batches); }

  /// Takes `steps` steps (0: as a local training) of `optimizer`, started afresh, from row c of
  /// `rows` [C, P] on the training samples of clients[c], in place and in these columns, for the
  /// evaluation after a round: batches of Purpose::Evaluate and crops of pass 2^31, so that no training sees them. A
  /// client that cannot train stays.
  void adapt_(const Rows& rows, std::span<const std::int64_t> clients, std::int64_t round,
              std::int64_t steps, RowOptimizer& optimizer, const Columns& columns = {});
  /// The same by as many steps as a local training takes, with its optimizer, in these columns.
  void adapt_(const Rows& rows, std::span<const std::int64_t> clients, std::int64_t round,
              const Columns& columns = {});

  /// What train.lr is multiplied with in a round, by a schedule that counts rounds; before round 1
  /// (round 0) as in it.
  double lr_factor(std::int64_t round) const { return options_.lr_factor_of_round(round); }
  /// From now on clients are at the first local training of a round, or at this one of so many that
  /// follow one another: what a schedule that counts epochs has to know.
  void at_training(std::int64_t number = 0, std::int64_t of = 1) {
    batches_.at_training(number, of);
  }

  /// How many local steps have been captured as graphs: on a device only.
  std::int64_t captured_steps() const { return taker_.captured(); }
  /// Whether steps are captured where they can be, as they are at first; graphs that there are stay
  /// for when they are wanted again.
  void capture_steps(bool wanted) { taker_.capture(wanted); }

  /// Bytes for C clients in hand beside their rows: activations and gradients between layers, and
  /// the arena and optimizer states where the rule needs them.
  std::int64_t workspace_bytes(std::int64_t clients) const;

 private:
  void reserve(std::int64_t clients);
  /// The loop over the steps of a pass. `repeated` names its steps where those of other passes are
  /// the same: all but their runs and where they are planned.
  std::vector<TrainStatistics> each_step(std::span<const std::int64_t> clients,
                                         const BatchSource::Pass& pass,
                                         const std::function<void(LocalStep&)>& take, Steps steps,
                                         std::optional<StepGraphs::Key> repeated = std::nullopt);
  /// Names the steps of whole models by the optimizer and this penalty.
  StepGraphs::Key key_of(const Rows& rows, const Penalty& penalty);

  const Model& model_;
  const Shard& shard_;
  const TrainOptions& options_;
  Context context_;
  BatchSource batches_;
  StepWorkspace workspace_;
  /// Whose rows an optimizer has moved last.
  struct Moved {
    std::int64_t round = 0;
    std::vector<std::int64_t> clients;

    friend bool operator==(const Moved&, const Moved&) = default;
  };

  RowOptimizer optimizer_;
  Moved moved_;
  std::optional<RowOptimizer> of_factors_;  // of the map trained through last
  Moved moved_as_factors_;
  StepTaker taker_;  // last: what it has captured works on the others
};

}  // namespace fedhpc
