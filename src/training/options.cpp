#include "fedhpc/training/options.hpp"

#include "fedhpc/core/error.hpp"
#include "fedhpc/models/options.hpp"

namespace fedhpc {

namespace {

constexpr double kUsualMomentum = 0.9;

}  // namespace

void TrainOptions::declare(OptionSet& options) {
  options.add("train.batch_size", batch_size, count_from(0),
              "samples per local step; 0: every step uses all samples of the client");
  options.add("train.local_steps", local_steps, count_from(0),
              "batches a client trains on per round (set this or train.local_epochs)");
  options.add("train.local_epochs", local_epochs, count_from(0),
              "epochs a client trains per round (set this or train.local_steps)");
  options.add("train.lr", lr, at_least(0.0), "learning rate of local training");
  declare_schedule(options);
  options.add("train.optimizer", optimizer,
              {{"sgd", OptimizerKind::Sgd},
               {"momentum", OptimizerKind::Momentum},
               {"nesterov", OptimizerKind::Nesterov},
               {"adam", OptimizerKind::Adam}},
              "optimizer of local training, fresh for every client, round and pass; sgd with "
              "train.momentum above 0 is the same as momentum (or nesterov)");
  options
      .add("train.momentum", momentum, {.low = 0, .high = 1, .high_open = true},
           "factor mu of momentum, v <- mu v + g; unset: .9 with train.optimizer = momentum or "
           "nesterov")
      .acts(unless("train.optimizer", "adam"));
  options
      .add("train.nesterov", nesterov,
           "momentum that looks ahead, w <- w - lr (g + mu v); follows from train.optimizer = "
           "nesterov")
      .acts(where("train.optimizer", {"sgd"}))
      .acts(unless("train.momentum", "0"));
  options.add("train.weight_decay", weight_decay, at_least(0.0),
              "factor of the weights that is added to their gradient, on all trainable columns");
  options
      .add("train.decay_biases", decay_biases,
           "whether train.weight_decay is for biases too, those of batch norm among them")
      .acts(unless("train.weight_decay", "0"));
  options.add(
      "train.clip_norm", clip_norm, at_least(0.0),
      "the longest gradient of a batch's loss, by its L2 norm over what is trained (fedselect: "
      "over the whole model): longer ones are shortened to it, as by clip_grad_norm_; weight decay "
      "and a method's penalties come after, terms of the loss (MOON, pFedGraph) before; 0: none");
  options.add("train.loss", loss.kind,
              {{"auto", LossKind::Auto},
               {"cross_entropy", LossKind::CrossEntropy},
               {"binary_cross_entropy", LossKind::BinaryCrossEntropy},
               {"mean_squared_error", LossKind::MeanSquaredError}},
              "what training makes small; auto: cross_entropy of labels and of sequences of them, "
              "binary_cross_entropy of several targets that are all 0 or 1, mean_squared_error of "
              "real numbers");
  const Condition classes = where("train.loss", {"auto", "cross_entropy"});
  options
      .add("train.label_smoothing", loss.label_smoothing, {.low = 0, .high = 1},
           "share of cross entropy's target that all classes have in equal parts; tests do without")
      .acts(classes);
  options
      .add("train.ignored_label", loss.ignored_label,
           between<std::int64_t>(-kLargestCount, kLargestCount),
           "label of a sequence's places that do not count, in training and in tests")
      .acts(classes);
  options
      .add("train.buffers", buffers,
           {{"average", BufferPlace::Average}, {"local", BufferPlace::Local}},
           "batch norm's running statistics. average: they travel and are averaged like weights; "
           "local: they stay with the client, in a model that it receives its own take their "
           "place, and a global or an edge's model is scored with those of the client whose test "
           "samples they are")
      .acts(of_model_with_images())
      .acts(where("model.norm", {"auto", "batch"}))
      .acts(where("data.split", {"client"}));
  options.add(
      "train.stragglers", stragglers, Bounds<double>{.low = 0, .high = 1, .high_open = true},
      "probability that a participant is late in a round, drawn for each anew; of several numbers "
      "client i has number i mod their count; what it does then: train.straggler_work");
  options
      .add("train.straggler_work", straggler_work,
           {{"part", StragglerWork::Part}, {"none", StragglerWork::None}},
           "part: a late participant takes some of its local steps, from one to all of them with "
           "equal probability, for which it needs more than one; none: it takes no part in the "
           "round, as if it had not been drawn, but one of those drawn together is always left "
           "(with edge models, at every edge)")
      .acts(unless("train.stragglers", "0"));
  options.add_or_auto("train.block", block,
                      "clients trained together in one block; auto: as many as fit into a core's "
                      "own cache, or a GPU's memory (never changes a result beyond rounding)");
  options
      .add("train.precision", precision,
           {{"fp32", Precision::Fp32}, {"tf32", Precision::Tf32}, {"bf16", Precision::Bf16}},
           "what the factors of products and convolutions are rounded to in training: fp32: "
           "nothing; tf32: 10 bits of fraction; bf16: 7; sums, weights and all else are float32 "
           "(tf32 is a GPU's fastest; bf16 saves it no memory; a CPU is slower with both)")
      .acts(where("run.dtype", {"float32"}))
      .acts(unless("model.backend", "autograd"));
}

void TrainOptions::resolve_length(const OptionSet& options) {
  const Origin& steps = options.origin("train.local_steps");
  const Origin& epochs = options.origin("train.local_epochs");
  if (local_steps > 0 && local_epochs > 0) {
    if (steps.level == epochs.level) {
      throw ConfigError(concat(steps.place, ": train.local_steps = ", local_steps,
                               " and train.local_epochs = ", local_epochs,
                               " cannot both count; keep one of them above 0"));
    }
    (steps.level > epochs.level ? local_epochs : local_steps) = 0;
  }
  if (local_steps == 0 && local_epochs == 0) {
    const Origin& last = epochs.level > steps.level ? epochs : steps;
    throw ConfigError(concat(last.level == Level::Default ? "configuration" : last.place,
                             ": one of train.local_steps and train.local_epochs must be above 0"));
  }
}

void TrainOptions::resolve_optimizer(const OptionSet& options) {
  const bool has_momentum =
      optimizer == OptimizerKind::Momentum || optimizer == OptimizerKind::Nesterov;
  const bool momentum_is_set = options.origin("train.momentum").level != Level::Default;
  const bool nesterov_is_set = options.origin("train.nesterov").level != Level::Default;
  if (has_momentum && !momentum_is_set) momentum = kUsualMomentum;
  if (optimizer == OptimizerKind::Nesterov && !nesterov_is_set) nesterov = true;

  if (has_momentum && momentum == 0) {
    options.refuse("train.momentum",
                   concat("train.optimizer = ", options.entry("train.optimizer").print(),
                          ": give it a number above 0 and below 1, or use sgd"));
  }
}

void TrainOptions::resolve(OptionSet& options, std::int64_t rounds, std::int64_t trainings) {
  resolve_length(options);
  const bool one_step = local_steps == 1 || (batch_size == 0 && local_epochs == 1);
  refuse_idle_stragglers(options, one_step ? 1 : kLargestCount);
  resolve_optimizer(options);
  resolve_schedule(options, rounds, trainings);
}

bool TrainOptions::has_stragglers() const {
  return std::ranges::any_of(stragglers, [](double share) { return share > 0; });
}

void TrainOptions::refuse_idle_stragglers(const OptionSet& options, std::int64_t steps) const {
  if (!has_stragglers() || straggler_work == StragglerWork::None || steps > 1) return;
  options.refuse("train.stragglers",
                 "participants that take one local step, of which nobody can leave out any; give "
                 "them more, or use train.straggler_work = none");
}

StepRule TrainOptions::step_rule() const {
  OptimizerKind kind = optimizer;
  if (kind == OptimizerKind::Sgd && momentum > 0) {
    kind = nesterov ? OptimizerKind::Nesterov : OptimizerKind::Momentum;
  }
  return {.kind = kind,
          .lr = lr,
          .momentum = momentum,
          .weight_decay = weight_decay,
          .decay_biases = decay_biases,
          .clip_norm = clip_norm,
          .scheduled = true};
}

}  // namespace fedhpc
