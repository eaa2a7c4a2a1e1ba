#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/data/batches.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/training/local_step.hpp"
#include "fedhpc/training/options.hpp"
#include "fedhpc/training/planned_batches.hpp"
#include "fedhpc/training/stragglers.hpp"

namespace fedhpc {

/// The batches of a block's local steps: which samples a client's step takes, at which rate, and
/// how they come into the workspace. On the host they are gathered step by step. For a device a
/// pass is planned before its first step, and gathering is enqueued. Training images are augmented
/// as the shard says, step s of a pass with crop_key(seed, round, client, pass, s).
class BatchSource {
 public:
  /// A share of a client's n training samples, 0 < of <= 1: max(1, floor(of n + 1/2)) drawn ones,
  /// or a slice of max(1, floor(of n)).
  struct Share {
    double of = 0;
    Sampled sampled = Sampled::Drawn;
    Share(double part, Sampled how = Sampled::Drawn) : of(part), sampled(how) {}  // NOLINT
  };

  /// Names the batches of a pass.
  struct Pass {
    std::int64_t round = 1;
    std::int64_t number = 0;
    Purpose purpose = Purpose::Batches;
    std::int64_t steps = 0;  ///< of each client that can train and is not late; 0: as train.* say
    Share share = 0;         ///< above 0: once through this share of the samples instead

    /// By which crops and layers draw, so that an evaluation repeats no training.
    std::int64_t drawn_number() const {
      return purpose == Purpose::Evaluate ? (std::int64_t{1} << 31) + number : number;
    }
  };

  BatchSource(const Layout& model, const Shard& shard, const TrainOptions& options,
              const Context& context);

  /// Local steps of a client with this many training samples that is not late.
  std::int64_t steps_for(std::int64_t samples) const;
  const Stragglers& stragglers() const { return stragglers_; }
  /// The most samples of a batch.
  std::int64_t capacity() const;
  /// Batches of that share of client `client`.
  std::int64_t batches(std::int64_t client, Share share) const;
  /// From now on passes of a share or of a given number of steps have no more than so many.
  void stop_passes_after(std::int64_t batches) { most_batches_ = batches; }
  /// Clients are at this training of so many that follow one another in a round.
  void at_training(std::int64_t number, std::int64_t of) {
    training_ = number;
    trainings_ = of;
  }

  /// Begins a pass of these clients, whose batches go into this workspace.
  void begin(std::span<const std::int64_t> clients, const Pass& pass,
             const StepWorkspace& workspace);
  /// Steps of the pass.
  std::int64_t steps() const { return steps_; }
  /// Puts the batches of a step, a draw's of those LocalStep names, into the workspace; gives them
  /// as runs of equal size. A draw's steps come in order.
  std::vector<BatchRun> gather(std::int64_t step, std::int64_t draw);
  /// A device goes on to the next step; enqueued.
  void advance() const {
    if (!context_.device.is_cpu()) planned_.advance();
  }
  /// The plan of a device's pass: the runs of every step, and the plan's memory.
  const PlannedBatches& planned() const { return planned_; }

 private:
  /// One client on its way through a pass.
  struct ClientPass {
    std::int64_t client = 0;
    std::int64_t steps = 0;
    BatchCursor batches;
    std::int64_t taken = 0;                        // batches, the last of which is
    std::span<const std::int64_t> positions = {};  // in the client's list
  };
  struct Draw {
    Pass pass;
    std::vector<ClientPass> clients;
  };

  /// How many of a client's training samples that share is.
  std::int64_t visited(std::int64_t client, Share share) const;
  std::int64_t steps_of(std::int64_t client, const Pass& pass) const;
  /// What train.lr is multiplied with at step `step` of a client.
  double rate_of(std::int64_t client, const Pass& pass, std::int64_t step) const;
  ClientPass start_pass(std::int64_t client, const Pass& pass) const;
  /// A shard that holds the training samples of these clients: that of all, or one made on demand,
  /// which is kept for the next pass of the same clients.
  const Shard& samples_of(std::span<const std::int64_t> clients);
  /// Sees to it that there are so many draws and one more; plans them for a device.
  void open(std::int64_t draw);
  /// The batch of step `step` of a client, with its crops where images are augmented; empty if it
  /// has run out.
  Batch next_batch(ClientPass& client_pass, const Pass& pass, std::int64_t step) const;

  const Layout& model_;
  const Shard& shard_;
  const TrainOptions& options_;
  Context context_;
  Stragglers stragglers_;
  SingleBatches singles_;
  std::int64_t largest_client_;  // training samples
  std::int64_t training_ = 0;
  std::int64_t trainings_ = 1;  // one after the other in a round
  std::int64_t most_batches_ = std::numeric_limits<std::int64_t>::max();
  std::optional<Shard> in_hand_;  // of a shard on demand: the clients trained last

  // Of the pass in hand:
  std::vector<std::int64_t> clients_;
  Pass pass_;
  const Shard* samples_ = nullptr;
  Tensor inputs_;   // [C, B, D]
  Tensor targets_;  // [C, B] or [C, B, T]
  std::int64_t steps_ = 0;
  std::vector<Draw> draws_;  // as far as they have been asked for
  PlannedBatches planned_;   // on a device
};

}  // namespace fedhpc
