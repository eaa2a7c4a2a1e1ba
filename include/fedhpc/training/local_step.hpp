#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/models/model.hpp"
#include "fedhpc/training/deferred_number.hpp"
#include "fedhpc/training/local_work.hpp"
#include "fedhpc/training/row_optimizer.hpp"

namespace fedhpc {

/// Sums over the local steps of one client: train_loss is loss / samples over all clients.
struct TrainStatistics {
  DeferredNumber loss{};  ///< sum of batch loss x batch size, where the gradient was taken first
  double samples = 0;     ///< sum of batch sizes
  std::int64_t gradients = 0;  ///< taken of batches, of all calls: what a simulated clock counts
  /// Values of gradients taken, one of each sample: of all calls, in the columns that moved.
  double gradient_values = 0;
};

/// Clients [first, first + count) of a block, side by side, with batches of one size and one
/// learning rate.
struct BatchRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t batch = 0;
  double rate = 1;  ///< what train.lr is multiplied with

  friend auto operator<=>(const BatchRun&, const BatchRun&) = default;
};

/// What is known of the local steps of a pass. Alike: a step moves tensors in place, all that it
/// computes from is in their memory (not in step.number(), nor in numbers that the host has
/// counted), and the host decides nothing by what comes out. On a device such a step is captured
/// once and repeated, which costs the host one call.
enum class Steps { Any, Alike };

/// What local steps work in, kept from one to the next: for C clients and batches of up to B
/// samples.
struct StepWorkspace {
  Activations activations;
  Tensor labels;             // [C, B] int64
  Tensor arena;              // [C, P] gradients, undefined until one is asked for
  std::vector<double> loss;  // [C] of one run, on the host
  // On a device, [C] float64: sums over a pass, and what does not count.
  Tensor losses;
  Tensor other_losses;
  DeviceConstants constants;
  // Of steps through a map, undefined until one is taken:
  Tensor models;            // [C, P] what the rows stand for
  Tensor factor_gradients;  // [C, Q]

  /// The gradients of `count` rows of P columns, made when there was no room for them.
  Tensor gradients(std::int64_t count, std::int64_t columns, const at::TensorOptions& options);
};

/// The mean loss of the batch of the block's client c as a function of what the head would see of
/// it, [B, E] float64, which writes its gradient [B, E]; all in host memory.
using EmbeddingLoss =
    std::function<double(std::int64_t c, const Tensor& embedding,
                         std::span<const std::int64_t> labels, const Tensor& gradient)>;

/// How far a problem on one batch is solved.
struct InnerSolve {
  std::int64_t steps = 1;  ///< at most
  double accuracy = 0;     ///< nu: a client stops at ||gradient||^2 <= nu; 0: only after the steps
};

/// One local step of a block of clients: a batch in hand for each client that has not run out of
/// them. Gradients may be taken as often as a method needs, at any models: every time on this
/// batch. Clients that have run out are left as they are.
///
/// Besides this batch, draw 0, there are further ones of the same sizes: draw d of a step of pass p
/// is that step's batch of pass p + 2^16 d, from permutations (and crops) of its own. A full batch
/// has all samples in every draw. A draw costs nothing until it is asked for.
///
/// The first gradient of a step counts into train_loss and moves the batch-norm statistics of the
/// rows it is taken at; further ones, on any draw, do neither.
class LocalStep {
 public:
  /// Pass p + kPassesPerDraw is the next draw of pass p.
  static constexpr std::int64_t kPassesPerDraw = std::int64_t{1} << 16;

  /// `gather` puts the batches of a draw into the workspace, which has those of draw 0 already.
  LocalStep(const Model& model, std::int64_t number, std::vector<BatchRun> runs,
            std::int64_t clients, StepWorkspace& workspace,
            std::vector<TrainStatistics>& statistics,
            const std::function<void(std::int64_t)>& gather);

  std::int64_t number() const { return number_; }  ///< in its pass, from 0

  /// How many clients have a batch. Precondition: they are the block's first, as in a Block.
  std::int64_t active() const;
  /// The sum so far, over the steps of the pass, of the loss of client c's batch times its size. On
  /// a device the host waits.
  double loss_so_far(std::int64_t c) const;
  std::int64_t samples(std::int64_t c) const;  ///< in client c's batch
  /// The rows of those clients, in the same memory; [A, P] of [C, P].
  Rows active(const Rows& rows) const;

  /// The gradients at `at` [C, P] of the mean losses of a draw's batches and the penalty: [C, P],
  /// of clients without a batch undefined. Valid until the next call.
  Tensor gradient(const Rows& at, const Penalty& penalty = {}, std::int64_t draw = 0);
  /// The same in these columns alone; the others are undefined, layers below them cost nothing.
  Tensor gradient(const Rows& at, const Penalty& penalty, std::int64_t draw,
                  const Columns& columns);

  /// The gradients of another loss in the place of the head and its own, in all columns but those
  /// of the head, which are undefined. On a device the host waits for what the loss reads.
  Tensor gradient_below_head(const Rows& at, const EmbeddingLoss& loss);

  /// One step of `rows` [C, P] by the optimizer's rule on that gradient, of the columns it moves;
  /// the penalty is for rows that move as a whole. Plain SGD is fused into
  /// the gradient products and needs no memory for gradients, unless the penalty shrinks: then its
  /// step and the penalty's are one pass.
  void descend_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty = {});
  /// Whether such a step is fused.
  static bool is_fused(const StepRule& rule, const Penalty& penalty);

  /// One step of `rows` [C, P] by the optimizer's rule on gradients of the caller's, of clients
  /// with a batch.
  void step_(const Tensor& rows, const Tensor& gradients, RowOptimizer& optimizer) const;
  /// Calls work(first, count, rate) for clients [first, first + count) whose train.lr is to be
  /// multiplied with `rate`: for rates of train.lr outside of an optimizer.
  void each_rate(const std::function<void(std::int64_t, std::int64_t, double)>& work) const;

  /// One step of `u` [C, Q] by the optimizer's rule on the gradient of the loss of the models that
  /// u stands for, through the map; batch-norm statistics come back to u.
  void descend_(const Rows& u, RowMap& map, RowOptimizer& optimizer);

  /// Solves  rows ~ argmin loss of the batch + penalty  from where the rows are, by steps of a
  /// fresh optimizer.
  void minimise_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                 const InnerSolve& inner);

 private:
  /// Sees to it that the workspace has the batches of this draw.
  void fetch(std::int64_t draw);
  /// The loss of one run and what goes back from it; counts that of the first call of the step.
  void take_loss(const BatchRun& run, const Activations& stack);
  /// The same of a loss in the place of the head.
  void take_loss(const BatchRun& run, const Activations& stack, const EmbeddingLoss& loss);
  /// Counts a gradient of these columns.
  void count(const BatchRun& run, const Columns& columns);
  /// Forward and backward of one run; counts the loss of the first call of the step. With `loss` it
  /// takes the place of the head.
  void differentiate(const Tensor& rows, const BatchRun& run, const GradientSink& sink,
                     const EmbeddingLoss* loss = nullptr);
  void descend_plain_(const Rows& rows, const RowOptimizer& optimizer, const Penalty& penalty);
  /// One step of those clients whose gradient is above the accuracy; false when there are none.
  /// The others have solved their problem: what the block computes for them from now on counts
  /// nowhere.
  bool approach_minimum_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                         double accuracy);

  const Model& model_;
  std::int64_t number_;
  std::vector<BatchRun> runs_;
  std::int64_t clients_;
  StepWorkspace& workspace_;
  std::vector<TrainStatistics>& statistics_;
  const std::function<void(std::int64_t)>& gather_;
  std::int64_t draw_ = 0;  // in the workspace
  bool counted_ = false;
  std::vector<bool> solved_;  // [C] while a problem is solved to an accuracy: who is done
};

}  // namespace fedhpc
