#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/rounds/block.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/coupling.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/round_log.hpp"
#include "fedhpc/rounds/round_notes.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/rounds/wire.hpp"

namespace fedhpc {

/// What a round works with on this rank. Lives as long as the experiment.
struct RoundServices {
  Topology& topology;
  const Partition& partition;
  const Model& model;
  const Shard& shard;
  LocalTrainer& trainer;
  Evaluator& evaluator;
  Ledger& ledger;
  const NetworkModel& network;
  Stopwatch& train_watch;
  Stopwatch& aggregate_watch;
  Stopwatch& evaluate_watch;
  at::ScalarType type;
  at::Device device = at::kCPU;  ///< of rows
  std::int64_t block_width;
  Summation summation;
  OwnBuffers* buffers = nullptr;          ///< null: they travel with the models
  bool absent_idle = false;               ///< of a plan, which looks at participants alone
  const LeavingRules* leaving = nullptr;  ///< null: rounds are never left
};

/// One global round as an algorithm sees it.
class Round {
 public:
  /// Whether models are scored after a round, and during it.
  enum class Evaluated { No, Yes };

  /// `cohort`: the participants of all ranks. `from`: what was done of the round when it was left.
  Round(RoundServices& services, std::int64_t number, Cohort cohort, Evaluated evaluated,
        std::unique_ptr<PartialRound> from = nullptr);

  std::int64_t number() const { return number_; }  ///< counted from 1
  const Cohort& cohort() const { return cohort_; }
  /// What train.lr is multiplied with in this round, by a schedule that counts rounds.
  double lr_factor() const { return services_.trainer.lr_factor(number_); }
  /// One entry per client of this rank and local training, or pass of each_batch().
  const std::vector<TrainStatistics>& statistics() const { return statistics_; }

  /// A weighted mean over the round's clients, of rows of `layout`; by default the model's.
  Mean mean(const LayoutPtr& layout = nullptr);
  /// The same column by column, over the clients that have sent it.
  ColumnMean column_mean(const LayoutPtr& layout = nullptr);

  /// What all participants weigh together.
  double total_weight(Weighting weighting) const;

  /// Goes through this rank's participants in blocks; their order and the blocks' width change
  /// nothing but speed and rounding.
  void each_block(const std::function<void(Block&)>& work);
  /// The same for this rank's clients that do not take part: for methods whose clients do something
  /// in every round. They exchange payloads and take time as participants do. `fedhpc plan` leaves
  /// them out.
  void each_absent_block(const std::function<void(Block&)>& work);

  /// The drawn edges receive the cloud's model [1, P], the others keep their row. Books one payload
  /// per drawn edge.
  void to_edges_(const Rows& model, EdgeRows& edges, const Codec& codec = dense_codec());

  /// Runs `count` edge rounds. In each, clients exchange payloads with their edge, and training
  /// sees batches of a pass of its own, numbered like the edge round from 0.
  void edge_rounds(std::int64_t count, const std::function<void()>& edge_round);

  /// The number of the edge round in hand, from 0.
  std::int64_t edge_round() const { return edge_round_; }
  /// Draws the participants of the edge round in hand, at every drawn edge as many as the round
  /// has; see draw_by_samples(). Once the edge rounds are over, the cohort is all of them together.
  void draw_edge_round(std::uint64_t seed);

  /// A weighted mean within every edge, of rows of the model's layout.
  EdgeMean edge_mean();

  /// The drawn edges of this rank where a participant has training samples. The others take part,
  /// but do not act.
  std::vector<std::int64_t> training_edges() const;
  /// The weight of each edge of this rank: what its participants weigh together, or 1 where they
  /// weigh anything.
  std::vector<double> weights_of_participants(Weighting weighting) const;
  std::vector<double> equal_weights() const;
  /// What all clients of each edge of this rank weigh together; 0 for an edge that is not drawn.
  std::vector<double> weights_of_edges(Weighting weighting) const;

  /// The weighted mean of the drawn edges' rows at the cloud, [1, P]; `otherwise` [1, P], or zeros
  /// where it is undefined, when nobody weighs anything. Books one payload per drawn edge.
  /// Collective.
  Rows to_cloud(const EdgeRows& edges, std::span<const double> weights,
                const Codec& codec = dense_codec(), const Rows& otherwise = {});

  /// Algebra between the clients of all ranks; `ids`: those of this rank, in the order of its rows.
  /// Collective.
  Coupling coupling(std::span<const std::int64_t> ids);

  /// Independent work of the server, spread over the ranks: the results of work(0) to work(n - 1),
  /// on every rank. Collective.
  std::vector<Tensor> on_server(std::int64_t n, const std::function<Tensor(std::int64_t)>& work);

  /// Sets a metric of the method's own to a value that is the same on every rank.
  void note(const std::string& metric, double value) { notes_.set(metric, value); }
  /// Adds one value of each edge of this rank to a metric of the method's own: the mean over
  /// training_edges() of all ranks.
  void note_edges(const std::string& metric, std::span<const double> values);
  /// What the round has noted of these metrics, or the mean of what clients and edges have; NaN
  /// where there is nothing. The same on every rank. Collective.
  std::vector<double> noted(const std::vector<std::string>& metrics);
  /// A quantile over the round's clients of what they have noted; NaN where there is nothing. The
  /// same on every rank. Collective.
  double noted_quantile(const std::string& metric, double fraction);

  /// Seconds of the round on the simulated network, NaN without a model of it; to be called when
  /// the algorithm is done. Collective.
  double simulated_seconds();

  /// Whether the round was left between two blocks, so that nothing that came out of it counts; to
  /// be called when the algorithm is done. Collective.
  bool is_left() { return log_.is_left(services_.topology); }
  /// What this rank has done of a round that was left.
  const PartialRound& partial() const { return log_.partial(); }

 private:
  friend class Block;

  void each_block_of(std::vector<std::int64_t> clients, const std::function<void(Block&)>& work);
  double weight_of(std::int64_t client, Weighting weighting) const;
  /// The drawn edges of this rank.
  std::vector<std::int64_t> edges() const;
  Tensor mean_at_cloud(const EdgeRows& edges, std::span<const double> weights, const Codec& codec,
                       const Rows& otherwise);
  void save(PartialRound& partial) const;
  void restore(const PartialRound& partial);
  MeanServices mean_services(const LayoutPtr& layout);

  RoundServices& services_;
  std::int64_t number_;
  Cohort cohort_;
  Evaluated evaluated_;
  std::int64_t edge_round_ = 0;
  std::vector<std::int64_t> drawn_once_;  // before participants were drawn for an edge round
  std::set<std::int64_t> drawn_so_far_;   // for the edge rounds
  Wire wire_;
  std::vector<TrainStatistics> statistics_;
  RoundNotes notes_;
  RoundLog log_;
};

}  // namespace fedhpc
