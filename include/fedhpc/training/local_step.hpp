#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/models/model.hpp"
#include "fedhpc/training/deferred_number.hpp"
#include "fedhpc/training/local_work.hpp"
#include "fedhpc/training/loss.hpp"
#include "fedhpc/training/row_optimizer.hpp"

namespace fedhpc {

/// Sums over the local steps of one client: train_loss is loss / samples over all clients.
struct TrainStatistics {
  /// Sum of batch loss x what it is the mean of, where the gradient was taken first.
  DeferredNumber loss{};
  /// Sum of what those losses are means of: samples or, of sequences, places that count.
  DeferredNumber samples{};
  std::int64_t gradients = 0;  ///< of batches, of all calls: a simulated clock counts them
  /// Gradient values computed, one of each sample: of all calls, in the columns that moved.
  double gradient_values = 0;
};

/// Clients [first, first + count) of a block, side by side, with batches of one size and one
/// learning rate.
struct BatchRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t batch = 0;
  double rate = 1;  ///< factor on train.lr

  friend auto operator<=>(const BatchRun&, const BatchRun&) = default;
};

/// Tells what is known of the local steps of a pass. A step is Alike if it moves tensors in place
/// and all that it computes from is in their memory. That excludes step.number() and numbers that
/// the host has counted. Nor may the host decide anything by its result. A device captures such a
/// step once and repeats it, which costs the host one call.
enum class Steps { Any, Alike };

/// The memory of local steps, kept from one step to the next, for C clients and batches of up to B
/// samples.
struct StepWorkspace {
  Activations activations;
  Activations evaluation;  // of embeddings, undefined until one is asked for
  Loss loss;
  Tensor targets;  // [C, B] labels, or [C, B, T]
  Tensor arena;    // [C, P] gradients, undefined until one is asked for
  // Of one run, on the host: [C]
  std::vector<double> run_losses;
  std::vector<double> run_counts;
  // On a device, [C] float64: sums over a pass, and those that do not count.
  Tensor losses;
  Tensor other_losses;
  Tensor counts;  // of sequences' places, else undefined
  Tensor other_counts;
  DeviceConstants constants;
  // Steps through a map use these, undefined until one is taken:
  Tensor models;            // [C, P] weights that the rows stand for
  Tensor factor_gradients;  // [C, Q]

  /// Room for the gradients of rows [C, P], which follow each other as these do; 0 at first.
  Tensor gradients(const Tensor& rows);
};

/// The mean loss of the batch of the block's client c as a function of its embedding, [B, E]
/// float64, which the head would see. It writes its gradient [B, E]. All are in host memory.
using EmbeddingLoss =
    std::function<double(std::int64_t c, const Tensor& embedding,
                         std::span<const std::int64_t> labels, const Tensor& gradient)>;

/// A term of the loss beside that of the outputs, a function of what the head sees. For the clients
/// of a run it adds the gradient of each batch's mean term to `gradient`. Both lie where the rows do.
using EmbeddingTerm = std::function<void(const BatchRun& run,
                                         const Tensor& embedding,   // [n, B, E]
                                         const Tensor& gradient)>;  // [n, B, E]

/// A solve on one batch ends after these.
struct InnerSolve {
  std::int64_t steps = 1;  ///< at most
  double accuracy = 0;     ///< nu: a client stops at ||direction||^2 <= nu; 0: only after the steps
};

/// One local step of a block of clients, with a batch for each client that has not run out of them.
/// A method takes gradients as often as it needs, at any models, each time on this batch. Clients
/// that have run out are left as they are.
///
/// Besides this batch, draw 0, there are further ones of the same sizes. Draw d of a step of pass p
/// is that step's batch of pass p + 2^16 d, from permutations (and crops) of its own. A full batch
/// has all samples in every draw. A draw costs nothing until it is asked for.
///
/// The first gradient of a step counts into train_loss and moves the batch-norm statistics of its
/// rows. Further ones, on any draw, do neither.
class LocalStep {
 public:
  /// Pass p + kPassesPerDraw is the next draw of pass p.
  static constexpr std::int64_t kPassesPerDraw = std::int64_t{1} << 16;

  /// `draws` name the step and its clients; gradients count their calls. `gather` puts the batches
  /// of a draw into the workspace, which has those of draw 0 already.
  LocalStep(const Model& model, const LayerDraws& draws, std::vector<BatchRun> runs,
            StepWorkspace& workspace, std::vector<TrainStatistics>& statistics,
            const std::function<void(std::int64_t)>& gather);

  std::int64_t number() const { return draws_.step; }  ///< in its pass, from 0

  /// The number of clients with a batch: the block's first. Throws Error where they are not: in
  /// Block::each_batch with train.stragglers; each_rate() goes through them there.
  std::int64_t active() const;
  /// The sum, over the steps of the pass so far, of client c's batch loss times what it is the mean
  /// of. On a device the host waits.
  double loss_so_far(std::int64_t c) const;
  /// The sum of what those losses are means of: samples or, of sequences, places that count.
  double counted_so_far(std::int64_t c) const;
  std::int64_t samples(std::int64_t c) const;  ///< in client c's batch
  /// Views the rows of those clients in the same memory; [A, P] of [C, P].
  Rows active(const Rows& rows) const;

  /// Returns the gradients at `at` [C, P] of the mean losses of a draw's batches and the penalty.
  /// They are [C, P], undefined for clients without a batch, and valid until the next call.
  Tensor gradient(const Rows& at, const Penalty& penalty = {}, std::int64_t draw = 0);
  /// Computes these columns alone. The others are undefined; layers below them cost nothing.
  Tensor gradient(const Rows& at, const Penalty& penalty, std::int64_t draw,
                  const Columns& columns);

  /// Returns the gradients of a loss that replaces the head and its loss. The head's columns are
  /// undefined. On a device the host waits for what the loss reads.
  Tensor gradient_below_head(const Rows& at, const EmbeddingLoss& loss);

  /// Returns what the heads of `at` [C, P] see of this batch where models are evaluated: without
  /// dropout, by running statistics. It is [C, B, E], undefined for clients without a batch and
  /// beyond a client's samples. Counts nowhere.
  Tensor embedding(const Rows& at);

  /// Moves `rows` [C, P] one step by the optimizer's rule on that gradient, in the columns it
  /// moves. Where the rule clips, that is the loss's part of it alone. The penalty is for rows that
  /// move as a whole. Plain SGD is fused into the gradient products and needs no memory for
  /// gradients, unless the penalty shrinks or pulls far. Then its step and the penalty's are one
  /// pass, which layers that can do so take within their products where nothing shrinks.
  void descend_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty = {});
  /// The same with a term of the loss that is not counted. Nothing is asked of a model whose head
  /// sees the samples themselves.
  void descend_(const Rows& rows, RowOptimizer& optimizer, const EmbeddingTerm& term);
  /// Whether such a step is fused.
  static bool is_fused(const StepRule& rule, const Penalty& penalty);

  /// Moves the rows [C, P] of clients with a batch one step by the optimizer's rule on the caller's
  /// gradients, which are clipped where the rule does so.
  void step_(const Tensor& rows, const Tensor& gradients, RowOptimizer& optimizer) const;
  /// Calls work(first, count, rate) for clients [first, first + count) with the factor `rate` on
  /// train.lr: for rates of train.lr outside of an optimizer.
  void each_rate(const std::function<void(std::int64_t, std::int64_t, double)>& work) const;

  /// Moves `u` [C, Q] one step by the optimizer's rule on the loss's gradient through the map, at
  /// the models that u stands for, plus those of `base` [C, P] where columns do not pass through. A
  /// rule that clips takes the length of the gradient of u. Batch-norm statistics come back to u.
  void descend_(const Rows& u, RowMap& map, RowOptimizer& optimizer, const Rows& base = {});

  /// Solves  rows ~ argmin loss of the batch + penalty  from where the rows are, by steps of the
  /// optimizer. It starts afresh in the columns of its last reset; with a penalty these are all.
  void minimise_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                 const InnerSolve& inner);

 private:
  /// Gathers the batches of this draw into the workspace, unless it has them.
  void fetch(std::int64_t draw);
  /// Computes the loss of one run and its gradient; counts that of the first call of the step.
  void take_loss(const BatchRun& run, const Activations& stack);
  /// Computes a loss that replaces the head.
  void take_loss(const BatchRun& run, const Activations& stack, const EmbeddingLoss& loss);
  /// Counts a gradient of these columns.
  void count(const BatchRun& run, const Columns& columns);
  /// The part of `all` that is of one run.
  static Activations of_run(const Activations& all, const BatchRun& run);
  /// Runs one run forward and backward and counts the loss of the first call of the step. `loss`
  /// replaces the head where it is given.
  void differentiate(const Tensor& rows, const BatchRun& run, const GradientSink& sink,
                     const EmbeddingLoss* loss = nullptr);
  /// Goes backward from the outputs' gradient, and adds that of the term where there is one.
  void backward(const Tensor& weights, const BatchRun& run, const Activations& stack,
                const GradientSink& sink) const;
  /// Returns what the rule steps on: the loss's gradient, clipped as the rule says, and then the
  /// penalty's.
  Tensor direction(const Rows& at, const RowOptimizer& optimizer, const Penalty& penalty);
  void descend_plain_(const Rows& rows, const RowOptimizer& optimizer, const Penalty& penalty);
  /// A plain step with the penalty in one pass, over what layers have not taken by themselves.
  void descend_pulled_(const Rows& rows, const RowOptimizer& optimizer, const Penalty& penalty);
  /// Moves the clients whose direction is above the accuracy one step; false when there are none.
  /// The others have solved their problem: what the block computes for them from now on counts
  /// nowhere.
  bool approach_minimum_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                         double accuracy);

  const Model& model_;
  LayerDraws draws_;
  std::vector<BatchRun> runs_;
  std::int64_t clients_;
  StepWorkspace& workspace_;
  std::vector<TrainStatistics>& statistics_;
  const std::function<void(std::int64_t)>& gather_;
  std::int64_t draw_ = 0;  // in the workspace
  bool counted_ = false;
  const EmbeddingTerm* term_ = nullptr;  // of the step in hand
  std::vector<bool> solved_;  // [C] while a problem is solved to an accuracy: who is done
};

}  // namespace fedhpc
