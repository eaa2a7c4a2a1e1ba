#include "fedhpc/engine/experiment.hpp"

#include <ctime>

#include "fedhpc/engine/checkpoint.hpp"

#include "engine/state_copy.hpp"

namespace fedhpc {

Experiment::Experiment(Config& config, Communicator& comm, const Resumption* from)
    : parts_(config, comm, from), personal_(parts_.partition.clients(), parts_.loss) {
  if (from != nullptr) diverged_since_ = from->diverged_since;
  divergence_.emplace(parts_.loss.of_guessing(), diverged_since_);
  first_record_ = current_model();
  initial_record_ = first_record_;
  if (!has_global(parts_.method().traits().models)) initial_record_.global = parts_.initial;
  if (from != nullptr) {
    read_state(*from, comm, *this);
    rounds_done_ = from->round;
    prepared_ = true;
  }
}

void Experiment::prepare() {
  if (prepared_) return;
  prepared_ = true;
  parts_.comm.place() = {.task = Place::Task::Round};
  RoundServices before_rounds = parts_.services(*parts_.trainer);
  RoundState state(before_rounds, 0, parts_.everybody(), RoundState::Evaluated::No);
  Round round(state);
  parts_.method().prepare(round);
  state.check_unsent();
  parts_.books.train_watch.lap();
  parts_.books.aggregate_watch.lap();
}

void Experiment::run(const std::function<void(const RoundReport&)>& observe,
                     const std::function<RoundRequest(std::int64_t)>& ask,
                     const std::function<bool()>& stop_asked) {
  prepare();
  RoundServices in_round = parts_.services(*parts_.trainer);
  in_round.moves = parts_.moves.get();
  seconds_waited_ = parts_.comm.seconds_waited();
  processor_time_ = std::clock();
  LeavingRules leaving{.asked = stop_asked, .grace_seconds = parts_.config.run.grace_seconds};
  bool stop = false;
  for (std::int64_t t = rounds_done_ + 1; t <= parts_.config.run.rounds && !stop; ++t) {
    Stopwatch wall;
    wall.start();
    parts_.books.ledger.clear();
    parts_.comm.place() = {.task = Place::Task::Round, .round = t};
    const bool evaluated = t % parts_.config.run.eval_every == 0 || t == parts_.config.run.rounds;
    // Of the first round nobody knows how long it is.
    leaving.last_round_seconds = last_round_seconds_;
    const bool long_round =
        last_round_seconds_ == 0 || last_round_seconds_ >= parts_.config.run.grace_seconds;
    const bool leavable = parts_.method().traits().can_leave_rounds && long_round;
    in_round.leaving = leavable ? &leaving : nullptr;
    StateCopy before;
    if (leavable) visit_common_state(before);
    // run.eval_every may have changed since the round was left: its own scores are those of all
    // participants or of none.
    const bool scored = partial_ ? partial_->evaluated : evaluated;
    RoundState state(in_round, t, parts_.draw(t),
                     scored ? RoundState::Evaluated::Yes : RoundState::Evaluated::No,
                     std::move(partial_));
    Round round(state);
    parts_.method().round(round);
    state.go_home();
    const bool left = state.is_left();
    if (!left) state.check_private();
    if (left) {
      before.put_back();
      visit_common_state(before);
      partial_ = std::make_unique<PartialRound>(state.log.partial());
      observe({.round = t - 1, .agreed = {.stop = true}, .left = true});
      return;
    }

    RoundReport report{.round = t,
                       .evaluated = evaluated,
                       .cohort = &state.cohort.clients,
                       .personal = &personal_};
    if (report.evaluated) evaluate(report);
    wall.stop();
    last_round_seconds_ = wall.seconds();
    wall.start();
    total(state, ask(t), report);
    wall.stop();
    report.metrics.wall_seconds = wall.seconds();
    rounds_done_ = t;
    stop = report.agreed.stop || (diverged_since_ > 0 && parts_.config.run.stop_on_divergence);
    observe(report);
  }
}

void Experiment::visit_state(StateVisitor& state) {
  state.clients(*parts_.store);
  visit_common_state(state);
}

void Experiment::visit_common_state(StateVisitor& state) {
  personal_.visit_state(state);
  parts_.links->visit_state(state);
  parts_.method().visit_state(state);
}

}  // namespace fedhpc
