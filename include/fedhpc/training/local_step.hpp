#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/models/model.hpp"
#include "fedhpc/training/local_work.hpp"
#include "fedhpc/training/row_optimizer.hpp"

namespace fedhpc {

/// Sums over the local steps of one client: train_loss is loss / samples over all clients.
struct TrainStatistics {
  double loss = 0;     ///< sum of batch loss x batch size, where the gradient was taken first
  double samples = 0;  ///< sum of batch sizes
};

/// Clients [first, first + count) of a block, side by side, with batches of one size.
struct BatchRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t batch = 0;
};

/// What local steps work in, kept from one to the next: for C clients and batches of up to B
/// samples.
struct StepWorkspace {
  Activations activations;
  Tensor labels;             // [C, B] int64
  Tensor arena;              // [C, P] gradients, undefined until one is asked for
  std::vector<double> loss;  // [C] of one run

  /// The gradients of `count` rows of P columns, made when there was no room for them.
  Tensor gradients(std::int64_t count, std::int64_t columns, at::ScalarType type);
};

/// How far a problem on one batch is solved.
struct Inner {
  std::int64_t steps = 1;  ///< at most
  double accuracy = 0;     ///< nu: a client stops at ||gradient||^2 <= nu; 0: only after the steps
};

/// One local step of a block of clients: a batch in hand for each client that has not run out of
/// them. Gradients may be taken as often as a method needs, at any models: every time on this
/// batch. Clients that have run out are left as they are.
///
/// The first gradient of a step counts into train_loss and moves the batch-norm statistics of the
/// rows it is taken at; further ones on the same batch do neither.
class LocalStep {
 public:
  LocalStep(const Model& model, std::int64_t number, std::vector<BatchRun> runs,
            std::int64_t clients, StepWorkspace& workspace,
            std::vector<TrainStatistics>& statistics);

  std::int64_t number() const { return number_; }  ///< in its pass, from 0

  /// How many clients have a batch. Precondition: they are the block's first, as in a Block.
  std::int64_t active() const;
  /// The rows of those clients, in the same memory; [A, P] of [C, P].
  Rows active(const Rows& rows) const;

  /// The gradients at `at` [C, P] of the batches' mean losses and the penalty: [C, P], of clients
  /// without a batch undefined. Valid until the next call.
  Tensor gradient(const Rows& at, const Penalty& penalty = {});

  /// One step of `rows` [C, P] by the optimizer's rule on that gradient. Plain SGD is fused into
  /// the gradient products and needs no memory for gradients, unless the penalty shrinks: then its
  /// step and the penalty's are one pass.
  void descend_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty = {});

  /// Solves  rows ~ argmin loss of the batch + penalty  from where the rows are, by steps of a
  /// fresh optimizer.
  void minimise_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                 const Inner& inner);

 private:
  /// Forward and backward of one run; counts the loss of the first call of the step.
  void differentiate(const Tensor& rows, const BatchRun& run, const GradientSink& sink);
  void descend_plain_(const Rows& rows, double lr, const Penalty& penalty);
  /// One step of those clients whose gradient is above the accuracy; false when there are none.
  bool approach_minimum_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                         double accuracy);

  const Model& model_;
  std::int64_t number_;
  std::vector<BatchRun> runs_;
  std::int64_t clients_;
  StepWorkspace& workspace_;
  std::vector<TrainStatistics>& statistics_;
  bool counted_ = false;
};

}  // namespace fedhpc
