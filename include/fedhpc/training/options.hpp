#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/core/tensor.hpp"
#include "fedhpc/training/loss.hpp"
#include "fedhpc/training/row_optimizer.hpp"

namespace fedhpc {

/// The place of batch norm's running statistics between rounds.
enum class BufferPlace {
  Average,  ///< they travel with the models and are averaged
  Local     ///< they stay with the clients
};

/// The course of train.lr over a run.
enum class LrSchedule { Constant, Exponential, Step, Milestones, Cosine };
/// The unit that the schedule counts.
enum class LrUnit { Round, Epoch };

/// What a participant that is late does in its round.
enum class StragglerWork {
  Part,  ///< some of its local steps
  None   ///< it does not take part
};

/// The `train.*` keys.
struct TrainOptions {
  std::int64_t batch_size = 20;   ///< samples; 0: all of a client's samples in every step
  std::int64_t local_steps = 0;   ///< batches per round, or 0
  std::int64_t local_epochs = 1;  ///< epochs per round, or 0
  double lr = 0.05;
  LrSchedule lr_schedule = LrSchedule::Constant;
  LrUnit lr_unit = LrUnit::Round;
  double lr_decay = 0.99;
  std::int64_t lr_every = 10;                 ///< units between two steps
  std::vector<std::int64_t> lr_milestones{};  ///< units before each step, rising
  std::int64_t lr_period = 0;                 ///< units of the cosine; 0: to the last round
  double lr_final = 0;
  std::int64_t lr_warmup = 0;  ///< units; the schedule counts from their end
  double lr_warmup_start = 0.1;
  OptimizerKind optimizer = OptimizerKind::Sgd;  ///< as written; step_rule() counts
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  LossOptions loss = {};
  BufferPlace buffers = BufferPlace::Average;
  bool decay_biases = true;
  double clip_norm = 0;               ///< 0: gradients of any length
  std::vector<double> stragglers{0};  ///< probability of being late, of client i number i mod n
  StragglerWork straggler_work = StragglerWork::Part;
  std::int64_t block = 0;                 ///< clients trained together; 0: by the size of caches
  Precision precision = Precision::Fp32;  ///< of products and convolutions of float32

  void declare(OptionSet& options);
  /// Keeps the one of local_steps and local_epochs that was set at the higher level. Gives momentum
  /// and nesterov the values that follow from the optimizer, and a cosine the length of a run of so
  /// many rounds. Throws ConfigError when both lengths were set at one level, the one that counts
  /// is 0, or keys of the optimizer or the schedule contradict each other. A participant surely
  /// trains `trainings` times in a round.
  void resolve(OptionSet& options, std::int64_t rounds, std::int64_t trainings = 1);
  /// For what divides by the rate of a round: throws ConfigError, with `because`, where it is less
  /// than a number of `dtype` that can be divided by.
  void refuse_lost_rates(const OptionSet& options, std::int64_t rounds, DType dtype,
                         const std::string& because) const;

  bool has_stragglers() const;
  /// Throws ConfigError where late participants could not train less than others: they take `steps`
  /// local steps at most.
  void refuse_idle_stragglers(const OptionSet& options, std::int64_t steps) const;

  /// The rule of a local step. sgd with momentum is PyTorch's SGD with momentum: the same as
  /// optimizer = momentum, or nesterov where train.nesterov says so.
  StepRule step_rule() const;
  /// The factor on train.lr after t of lr_unit, counted over the whole run. With t' = t - lr_warmup
  /// it is that of PyTorch's schedulers one after the other (SequentialLR),
  ///
  ///   t' < 0       s + (1 - s) t / lr_warmup,  s = lr_warmup_start           LinearLR
  ///   constant     1
  ///   exponential  lr_decay^t'                                               ExponentialLR
  ///   step         lr_decay^floor(t' / lr_every)                             StepLR
  ///   milestones   lr_decay^n, n the milestones up to t'                     MultiStepLR
  ///   cosine       f + (1 - f) (1 + cos(pi t' / lr_period)) / 2,  f = lr_final  CosineAnnealingLR
  ///
  /// but a cosine stays at f after its period.
  double lr_factor(std::int64_t units) const;
  /// The same in a round, by a schedule that counts rounds; before round 1 (round 0) as in it.
  double lr_factor_of_round(std::int64_t round) const { return lr_factor(rounds_behind(round)); }
  /// A sentence on the change of the rate that no round of a run of `rounds` comes to; empty if there
  /// is none. Epochs are not counted ahead.
  std::string unreached_rate(std::int64_t rounds) const;
  static std::int64_t rounds_behind(std::int64_t round) { return round > 0 ? round - 1 : 0; }

 private:
  void resolve_length(const OptionSet& options);
  void resolve_optimizer(const OptionSet& options);
  void declare_schedule(OptionSet& options);
  void resolve_schedule(const OptionSet& options, std::int64_t rounds, std::int64_t trainings);
};

}  // namespace fedhpc
