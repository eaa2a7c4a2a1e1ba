#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/engine/metrics.hpp"
#include "fedhpc/engine/model_record.hpp"
#include "fedhpc/rounds/own_buffers.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/training/evaluator.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

/// Clients may train with these before they are evaluated.
struct Adaptation {
  LocalTrainer& trainer;
  std::int64_t round = 0;         ///< they are evaluated after it
  OwnBuffers* buffers = nullptr;  ///< of a model that they receive; null: the model's
};

/// The samples of some clients that models are scored on, and the scores in order of id.
struct ClientScores {
  const Shard* shard;           ///< null: there are none
  std::vector<Score> global;    ///< of the global model
  std::vector<Score> personal;  ///< of each client's own model

  ClientScores(const Shard* samples, std::size_t clients);
};

/// Scores what an algorithm's evaluate() names as its models.
class RankEvaluation final : public Evaluation {
 public:
  /// `clients` are those of this rank that are scored, ascending; they outlive the evaluation.
  /// `validation` holds the samples set aside, as test samples of the same clients, or is null.
  /// `server` is this rank's part of the official test set, or null.
  RankEvaluation(Evaluator& evaluator, const Shard& shard, const Shard* validation,
                 const Shard* server, std::span<const std::int64_t> clients,
                 const Topology& topology, const Adaptation& adaptation, std::int64_t block_width);

  void global(const Rows& model) override;
  void shared(const Rows& columns) override { record_.global = columns.clone(); }
  void edges(const EdgeRows& models) override;
  void each_block(const std::function<void(EvaluationBlock&)>& work) override;

  void factors(const Rows& factors) override { record_.factors = factors.clone(); }

  bool has_edges() const { return has_edges_; }
  bool has_personal() const { return has_personal_; }
  const ModelRecord& record() const { return record_; }
  const ClientScores& on_test() const { return test_; }
  const ClientScores& on_validation() const { return validation_; }
  /// The score of each client's edge model on its test samples, in ascending order of id.
  const std::vector<Score>& edge() const { return edge_; }
  /// The scores of the global model on this rank's part of the official test set, chunk by chunk.
  const std::vector<Score>& official() const { return official_; }

 private:
  /// Scores one model on the test samples that some of this rank's clients have in `shard`.
  std::vector<Score> scores_of(const Rows& model, const Shard& shard,
                               std::span<const std::int64_t> clients);

  Evaluator& evaluator_;
  const Shard& shard_;
  const Shard* server_;
  std::span<const std::int64_t> clients_;
  const Topology& topology_;
  Adaptation adaptation_;
  std::int64_t block_width_;
  bool has_edges_ = false;
  bool has_personal_ = false;
  ModelRecord record_;
  ClientScores test_;
  ClientScores validation_;
  std::vector<Score> edge_;
  std::vector<Score> official_;
};

/// Gathers the personal models that an algorithm's evaluate() names, block by block, on rank 0.
class PersonalCollector final : public Evaluation {
 public:
  PersonalCollector(Communicator& comm, const Shard& shard, LayoutPtr layout, at::ScalarType type,
                    const Adaptation& adaptation, std::int64_t block_width, VisitModels visit);

  void global(const Rows&) override {}
  void shared(const Rows&) override {}
  void edges(const EdgeRows&) override {}
  void each_block(const std::function<void(EvaluationBlock&)>& work) override;

 private:
  Communicator& comm_;
  const Shard& shard_;
  LayoutPtr layout_;
  at::ScalarType type_;
  Adaptation adaptation_;
  std::int64_t block_width_;
  VisitModels visit_;
};

/// Gathers all ranks' scores one after the other on rank 0; elsewhere empty. Collective.
std::vector<Score> gather_scores(Communicator& comm, const std::vector<Score>& mine);

/// Returns the place of every client, [N], in values gathered rank by rank.
std::vector<std::int64_t> gathered_places(const Placement& placement);

/// Returns the mean over edges of what a measure says of the edge's model on its clients' test
/// samples; NaN when no edge has any. `scores` [N] are in order of client.
double mean_over_edges(const std::vector<Score>& scores, const Placement& placement,
                       double Measured::*measure);

}  // namespace fedhpc
