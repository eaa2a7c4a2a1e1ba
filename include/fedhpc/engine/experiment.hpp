#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/engine/divergence.hpp"
#include "fedhpc/engine/metrics.hpp"
#include "fedhpc/engine/model_record.hpp"
#include "fedhpc/engine/parts.hpp"

namespace fedhpc {

/// A rank's requests after a round. They are carried out if any rank makes them.
struct RoundRequest {
  bool stop = false;
  bool checkpoint = false;
};

/// The results of one round. Complete on rank 0; other ranks see the model and the cohort only.
struct RoundReport {
  std::int64_t round = 0;
  bool evaluated = false;
  RoundRequest agreed = {};         ///< by all ranks; a run stops after the round if asked to
  bool left = false;                ///< the round after this one was left between two blocks
  double train_samples = 0;         ///< processed in local steps; 0 when no participant has any
  std::int64_t diverged_since = 0;  ///< the round in which it began, known to all ranks; 0: none
  RoundMetrics metrics{};
  const std::vector<std::int64_t>* cohort = nullptr;
  const PersonalMetrics* personal = nullptr;
  bool global_scored = false;    ///< on samples: global_loss is one, if only NaN
  bool personal_scored = false;  ///< the same of personal_loss
};

/// One run: its parts, and the loop over its rounds. Every rank makes one.
class Experiment {
 public:
  /// `from` is the checkpoint to go on from; DataError if its model or data are others.
  Experiment(Config& config, Communicator& comm, const Resumption* from = nullptr);

  /// Runs the method's prepare() before the first round, once; run() does so if nobody has. Does
  /// nothing for a run that goes on. Collective.
  void prepare();
  /// Runs all rounds, or those after the checkpoint; after each, `observe` is called on every rank.
  /// `ask` returns this rank's requests after a round. The ranks agree on them in the round's own
  /// reduction. A round that would take longer than run.grace_seconds after `stop_asked` is left
  /// between two blocks, if the method can do so. The state is then that before the round;
  /// partial() holds what was done of it. The last report is that of the round before.
  void run(
      const std::function<void(const RoundReport&)>& observe,
      const std::function<RoundRequest(std::int64_t)>& ask =
          [](std::int64_t) { return RoundRequest{}; },
      const std::function<bool()>& stop_asked = [] { return false; });
  /// The work this rank has done of the round that was left; null if none was.
  const PartialRound* partial() const { return partial_.get(); }
  /// Goes on inside the next round, which has been begun; call it before run().
  void go_on_inside(std::unique_ptr<PartialRound> partial) { partial_ = std::move(partial); }
  /// Visits all that the next round depends on.
  void visit_state(StateVisitor& state);
  /// The model that global_accuracy would evaluate now, with its factors. Collective.
  ModelRecord current_model() const;

  const Parts& parts() const { return parts_; }
  const Config& config() const { return parts_.config; }
  const Partition& partition() const { return parts_.partition; }
  /// Before round 1: the global model; where a method has none, every client starts from this one.
  const ModelRecord& initial() const { return initial_record_; }
  /// The content of /model before round 1, with the shapes of later ones.
  const ModelRecord& first_record() const { return first_record_; }
  /// The model that global_accuracy evaluates, as of the last evaluation; undefined before.
  const ModelRecord& last_evaluated() const { return evaluated_; }
  /// The round in which the run began to diverge; 0: it does not.
  std::int64_t diverged_since() const { return diverged_since_; }
  /// Series of the method's own, in the order of RoundMetrics::own.
  const std::vector<Metric>& own_metrics() const { return parts_.own_metrics; }
  /// All series of the run, in the order of RoundMetrics::values().
  std::vector<Metric> series() const { return parts_.series(); }
  /// Hands all clients' personal models to `visit` on rank 0, some at a time, in no particular
  /// order. Hands over nothing where the method has none. Collective.
  void gather_personal_models(const VisitModels& visit) const;

 private:
  /// Sums the ledger's entries over all ranks; this rank's request becomes what all have agreed on.
  /// Collective.
  std::array<std::int64_t, Ledger::kEntries> booked(RoundRequest& request, RoundMetrics& metrics);
  /// Visits all that the next round depends on but for what lies with the clients.
  void visit_common_state(StateVisitor& state);
  void evaluate(RoundReport& report);
  /// Warns once where ranks have made different global models. Collective.
  void compare_ranks(std::int64_t round);
  /// Fills the edge_* metrics from the scores of the clients' edge models, [N].
  void note_edges(const std::vector<Score>& scores, RoundMetrics& metrics) const;
  /// Fills the validation_* metrics from the global model's score, if there is such a model, and
  /// from every client's score of its own [N].
  void note_validation(const Score& global, const std::vector<Score>& own,
                       RoundMetrics& metrics) const;
  /// Returns all clients' scores in order of id, on rank 0. Collective.
  std::vector<Score> gather_by_client(const std::vector<Score>& mine);
  /// Passes the losses of a round to the divergence check.
  void look_for_divergence(const RoundReport& report);
  void total(RoundState& round, const RoundRequest& request, RoundReport& report);
  /// Returns the values of the method's own series. Collective.
  std::vector<double> noted_by(RoundState& round) const;

  Parts parts_;
  ModelRecord first_record_;
  ModelRecord initial_record_;
  ModelRecord evaluated_;
  bool ranks_differ_ = false;  // which has been told
  std::int64_t rounds_done_ = 0;
  bool prepared_ = false;
  double seconds_waited_ = 0;              // for other ranks, until the last report
  std::clock_t processor_time_ = 0;        // of all threads, until the last report
  double last_round_seconds_ = 0;          // on rank 0, known to all; 0 before the first round
  std::optional<Divergence> divergence_;   // on rank 0
  std::int64_t diverged_since_ = 0;        // on rank 0, known to all
  std::unique_ptr<PartialRound> partial_;  // of the round after rounds_done_
  PersonalMetrics personal_;
};

}  // namespace fedhpc
