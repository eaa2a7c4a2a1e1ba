#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/coupling.hpp"
#include "fedhpc/rounds/edge_rows.hpp"
#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/network.hpp"
#include "fedhpc/rounds/own_buffers.hpp"
#include "fedhpc/rounds/random_columns.hpp"
#include "fedhpc/rounds/round_log.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/training/evaluator.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

/// How an algorithm weighs its clients (algorithm.weighting).
enum class Weighting { Samples, Batches, Uniform };

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

class Round;

/// C clients in hand: some participants of a round on this rank, one row each.
class Block {
 public:
  std::span<const std::int64_t> clients() const { return clients_; }  ///< ids, [C]
  std::int64_t count() const { return static_cast<std::int64_t>(clients_.size()); }
  std::span<const std::int64_t> edges();   ///< the edge of each client, [C]
  std::int64_t round() const;              ///< its number, from 1
  bool trains(std::int64_t client) const;  ///< whether a local training of it has a step

  /// What every client receives of a model [1, P], or of its edge's: C copies. Books one payload
  /// per client, which has room for so many bytes `beside` the model.
  Rows download(const Rows& model, const Codec& codec = dense_codec(), std::int64_t beside = 0);
  Rows download(const EdgeRows& models, const Codec& codec = dense_codec());
  /// The same for those of the clients that have no row in `store` yet: [n, P].
  Rows download_to_new(const StoredRows& store, const Rows& model,
                       const Codec& codec = dense_codec());
  /// What every client receives of a model of its own, row c of `models` [C, P]. Books one payload
  /// per client.
  Rows download_each(const Rows& models, const Codec& codec = dense_codec());

  /// Local training of every client from its row of `start` [C, P]; gives the trained rows. `work`
  /// names the pass whose batches are used and adds a penalty. Counts into train_loss.
  Rows train(const Rows& start, const LocalWork& work = {});

  /// Local training step by step, `take` making each from its batch. `pass` names the batches as in
  /// LocalWork. Counts into train_loss.
  void each_step(const std::function<void(LocalStep&)>& take,
                 std::optional<std::int64_t> pass = {});
  /// The same where more is known of the steps.
  void each_step(Steps steps, const std::function<void(LocalStep&)>& take,
                 std::optional<std::int64_t> pass = {});

  /// The same for one way through a share of every client's training samples, which `sampled` says
  /// how to choose: for what a method finds out beside local training. Counts into the round's
  /// simulated time and its gradients, not into train_loss. `fedhpc plan` takes it to be as long as
  /// local training.
  void each_batch(double share, std::int64_t pass, const std::function<void(LocalStep&)>& take,
                  Sampled sampled = Sampled::Drawn);

  /// Some of the clients, ids in the order of clients(), as a block of their own that lives no
  /// longer than `clients`.
  Block only(std::span<const std::int64_t> clients) const;

  /// Row c of `rows` [C, P] becomes what clients()[c] keeps. A client without any local step has
  /// not trained: it keeps what it had.
  void keep(StoredRows& store, const Rows& rows);
  /// Where batch norm's statistics stay with the clients, those in `rows` are the clients' own from
  /// now on; elsewhere nothing. To be called with what a client has made of a model it received.
  void keep_buffers(const Rows& rows);

  /// What the server (in edge rounds the client's edge) receives of the clients' rows [C, P]. Books
  /// one payload per client.
  Rows upload(const Rows& rows, const Codec& codec = dense_codec());
  /// The same of whole models. Where statistics stay with the clients, the server has 0 in their
  /// place in a change, and those of the initial model in a model.
  Rows upload_models(const Rows& models, const Codec& codec = dense_codec());

  /// Which columns of a model travel for each client, [C, P] of type bool. Books one payload of
  /// them per client.
  Tensor send(Direction direction, const RandomColumns& columns);

  /// The features of one client's training samples as training sees them, but for augmentation:
  /// [n, D] float64. For what a client tells of its data; costs n D numbers.
  Tensor samples_of(std::int64_t client) const;

  /// What the head of `model` [1, P] sees of one client's training samples, which augmentation
  /// leaves as they are: for a classifier of the client's own. Counts nowhere.
  Embedded embed(const Rows& model, std::int64_t client) const;

  /// The weight of each client, [C]: its training samples, the batches of an epoch of all of them,
  /// or 1 (0 without training samples).
  std::span<const double> weights(Weighting weighting);

  /// The accuracy of row c of `models` [C, P] on the test samples of clients()[c]: of models that
  /// the round does not keep. NaN without test samples, and in a round without evaluation, where it
  /// costs nothing.
  std::vector<double> evaluate(const Rows& models);

  /// Adds one value of each client [C] to a metric of the method's own: the mean, or a quantile,
  /// over the round's clients that have trained and whose value is not NaN.
  void note(const std::string& metric, std::span<const double> values);

 private:
  friend class Round;
  Block(Round& round, std::span<const std::int64_t> clients) : round_(round), clients_(clients) {}

  /// Counts what a local training has done.
  void book_training(const std::vector<TrainStatistics>& trained);
  /// Tells the clock of the gradients each client has taken.
  void book_gradients(const std::vector<TrainStatistics>& taken);
  /// What arrives of the row of each of these clients; books it, and so many bytes beside it.
  Rows transfer(const Rows& rows, std::span<const std::int64_t> clients, Direction direction,
                const Codec& codec, std::int64_t beside = 0);

  Round& round_;
  std::span<const std::int64_t> clients_;
  std::vector<std::int64_t> edges_;
  std::vector<double> weights_;
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
  void note(const std::string& metric, double value) { values_[metric] = value; }
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
  /// Books one payload of `bytes` for each of these clients of this rank.
  void book(Link link, Direction direction, std::int64_t bytes,
            std::span<const std::int64_t> clients);
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
  Link client_link_ = Link::ClientCloud;
  RoundClock clock_;
  std::vector<TrainStatistics> statistics_;
  std::map<std::string, double> values_;
  std::map<std::string, std::vector<double>> parts_;  // of this rank's clients or edges
  RoundLog log_;
};

}  // namespace fedhpc
