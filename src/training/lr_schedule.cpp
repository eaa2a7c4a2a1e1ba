// The course of train.lr over a run.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/local_steps.hpp"

namespace fedhpc {

void TrainOptions::declare_schedule(OptionSet& options) {
  options.add(
      "train.lr_schedule", lr_schedule,
      {{"constant", LrSchedule::Constant},
       {"exponential", LrSchedule::Exponential},
       {"step", LrSchedule::Step},
       {"milestones", LrSchedule::Milestones},
       {"cosine", LrSchedule::Cosine}},
      "how train.lr goes over a run, by train.lr_unit: as it is; times train.lr_decay after "
      "every one (exponential), every train.lr_every (step) or those of "
      "train.lr_milestones; or down to train.lr_final (cosine); rates of a method's own "
      "keys stay");
  options
      .add("train.lr_decay", lr_decay, above_up_to(0.0, 1.0),
           "factor of train.lr from one round or epoch to the next, or at each step")
      .acts(where("train.lr_schedule", {"exponential", "step", "milestones"}));
  options
      .add("train.lr_every", lr_every, count_from(1),
           "rounds or epochs from one step of train.lr to the next (StepLR's step_size)")
      .acts(where("train.lr_schedule", {"step"}));
  options
      .add("train.lr_milestones", lr_milestones, count_from(1),
           "rounds or epochs after which train.lr steps, counted from the end of the warm-up")
      .acts(where("train.lr_schedule", {"milestones"}));
  const Condition cosine = where("train.lr_schedule", {"cosine"});
  options
      .add_or_auto("train.lr_period", lr_period,
                   "rounds or epochs until train.lr is at train.lr_final, where it stays "
                   "(CosineAnnealingLR's T_max); auto: run.rounds less the warm-up, which a run "
                   "that is resumed with more rounds keeps")
      .acts(cosine);
  options
      .add("train.lr_final", lr_final, between(0.0, 1.0),
           "share of train.lr at the end of a cosine (eta_min of CosineAnnealingLR over train.lr)")
      .acts(cosine);
  options.add("train.lr_warmup", lr_warmup, count_from(0),
              "rounds or epochs at first in which train.lr grows linearly, ahead of "
              "train.lr_schedule, which counts from their end; 0: none");
  options
      .add("train.lr_warmup_start", lr_warmup_start, above_up_to(0.0, 1.0),
           "share of train.lr that a warm-up starts from (LinearLR's start_factor)")
      .acts(unless("train.lr_warmup", "0"));
  options
      .add("train.lr_unit", lr_unit, {{"round", LrUnit::Round}, {"epoch", LrUnit::Epoch}},
           "what train.lr_schedule counts: rounds, or epochs of a client that takes part in every "
           "round (those of all edge rounds; an epoch that ends early counts; of several trainings "
           "in a round, of the model or of its parts, the first alone)")
      .acts(either(unless("train.lr_schedule", "constant"), unless("train.lr_warmup", "0")));
}

void TrainOptions::resolve_schedule(const OptionSet& options, std::int64_t rounds,
                                    std::int64_t trainings) {
  if (lr_schedule == LrSchedule::Milestones) {
    if (lr_milestones.empty()) {
      options.refuse("train.lr_schedule", "no train.lr_milestones; give some, such as 60,80");
    }
    if (std::adjacent_find(lr_milestones.begin(), lr_milestones.end(), std::greater_equal{}) !=
        lr_milestones.end()) {
      options.refuse("train.lr_milestones", "numbers that do not rise; sort them");
    }
  }
  if (lr_schedule != LrSchedule::Cosine) return;
  const bool by_epoch = lr_unit == LrUnit::Epoch;
  if (by_epoch && lr_period == 0) {
    options.refuse("train.lr_unit", "train.lr_period = auto; give that a number of epochs");
  }
  if (lr_period == 0) lr_period = rounds - lr_warmup;
  if (lr_period <= 0) {
    options.refuse("train.lr_warmup", concat("run.rounds = ", rounds,
                                             ", which leaves no round to train.lr_schedule = "
                                             "cosine; lower it"));
  }
  // Local steps are at least one epoch of a training; those of its samples are counted with the data.
  const std::int64_t epochs = trainings * std::max<std::int64_t>(1, local_epochs);
  refuse_early_end(*this, options, by_epoch ? rounds * epochs : rounds);
}

void refuse_early_end(const TrainOptions& train, const OptionSet& options, std::int64_t units,
                      const std::string& of) {
  const std::int64_t end = train.lr_warmup + train.lr_period;
  if (train.lr_schedule != LrSchedule::Cosine || train.lr_final != 0 || end >= units) return;
  const bool given = options.origin("train.lr_period").level > Level::Stored;
  const char* unit = train.lr_unit == LrUnit::Epoch ? " epochs" : " rounds";
  options.refuse(given ? "train.lr_period" : "run.rounds",
                 concat("train.lr_schedule = cosine, whose rate is 0 after ", end, " of ", units,
                        unit, of, "; allowed: no more", unit,
                        " than that, or a run from its start with train.lr_final above 0"));
}

void TrainOptions::refuse_lost_rates(const OptionSet& options, std::int64_t rounds, DType dtype,
                                     const std::string& because) const {
  const double least = dtype == DType::Float64 ? std::numeric_limits<double>::min()
                                               : std::numeric_limits<float>::min();
  if (lr < least) options.refuse("train.lr", concat(because, ", which divides by it; raise it"));
  // The factor rises in a warm-up and never again.
  for (const std::int64_t round : {std::int64_t{1}, rounds}) {
    const double rate = lr * lr_factor_of_round(round);
    if (rate >= least) continue;
    const bool warming_up = round <= lr_warmup;
    options.refuse(warming_up ? "train.lr_warmup_start" : "train.lr_schedule",
                   concat(because, ", which divides by the rate: it is ", rate, " in round ", round,
                          "; let it fall less"));
  }
}

std::string TrainOptions::unreached_rate(std::int64_t rounds) const {
  if (lr_unit != LrUnit::Round) return {};
  const auto beyond = [&](const char* key, std::int64_t value, std::int64_t change) {
    if (change < rounds) return std::string();
    return concat(
        key, " = ", value, " has no effect on the rate: the run has ", rounds, " rounds",
        lr_warmup > 0 && change > value ? concat(", ", lr_warmup, " of them a warm-up") : "");
  };
  if (lr_warmup >= rounds) {
    return concat("train.lr_warmup = ", lr_warmup, ": train.lr is not reached in ", rounds,
                  " rounds");
  }
  if (lr_schedule == LrSchedule::Step) {
    return beyond("train.lr_every", lr_every, lr_warmup + lr_every);
  }
  if (lr_schedule != LrSchedule::Milestones) return {};
  return beyond("train.lr_milestones", lr_milestones.back(), lr_warmup + lr_milestones.back());
}

double TrainOptions::lr_factor(std::int64_t units) const {
  if (lr_warmup > 0 && units < lr_warmup) {
    return lr_warmup_start +
           (1 - lr_warmup_start) * static_cast<double>(units) / static_cast<double>(lr_warmup);
  }
  const std::int64_t t = units - lr_warmup;
  const auto after = [&](std::int64_t steps) {
    return std::pow(lr_decay, static_cast<double>(steps));
  };
  switch (lr_schedule) {
    case LrSchedule::Constant:
      return 1;
    case LrSchedule::Exponential:
      return after(t);
    case LrSchedule::Step:
      return after(t / lr_every);
    case LrSchedule::Milestones:
      return after(std::upper_bound(lr_milestones.begin(), lr_milestones.end(), t) -
                   lr_milestones.begin());
    case LrSchedule::Cosine:
      if (t >= lr_period) return lr_final;
      return lr_final + (1 - lr_final) / 2 *
                            (1 + std::cos(std::numbers::pi * static_cast<double>(t) /
                                          static_cast<double>(lr_period)));
  }
  throw std::logic_error("a schedule has a factor");
}

}  // namespace fedhpc
