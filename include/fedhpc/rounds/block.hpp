#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/edge_rows.hpp"
#include "fedhpc/rounds/random_columns.hpp"
#include "fedhpc/rounds/round_state.hpp"

namespace fedhpc {

/// C participants of a round on this rank, trained together: each client has one row.
class Block {
 public:
  /// `state` and `clients` outlive it.
  Block(RoundState& state, std::span<const std::int64_t> clients)
      : state_(state), clients_(clients) {}

  std::span<const std::int64_t> clients() const { return clients_; }  ///< ids, [C]
  std::int64_t count() const { return static_cast<std::int64_t>(clients_.size()); }
  std::vector<std::int64_t> clients_at(std::span<const std::int64_t> places) const;  ///< ids
  std::span<const std::int64_t> edges();   ///< the edge of each client, [C]
  std::int64_t round() const;              ///< its number, from 1
  bool trains(std::int64_t client) const;  ///< true: its local training has a step
  /// The local steps that each client takes in this round, [C], by train.*: fewer of a late one.
  std::vector<std::int64_t> local_steps() const;

  /// Sends a model to every client and returns what they receive, [C, P]. All get one model [1, P],
  /// or client c gets row c of [C, P], or the model of its edge. Books one payload per client: the
  /// model and `beside` more bytes.
  Rows download(const Rows& models, const Codec& codec, std::int64_t beside = 0);
  Rows download(const EdgeRows& models, const Codec& codec);
  /// Sends it as algorithm.downlink_codec says: by default as it is. `channel`: the number of this
  /// payload, where a round sends several so. Books `beside` more bytes as well.
  Rows download(const Rows& models, std::int64_t channel = 0, std::int64_t beside = 0);
  Rows download(const EdgeRows& models);
  /// Sends to every client what Round::for_everybody has encoded once.
  Rows download(const Received& message);

  /// Trains every client locally from its row of `start` [C, P] and returns the trained rows.
  /// `work` names the pass whose batches are used and adds a penalty. Counts into train_loss.
  Rows train(const Rows& start, const LocalWork& work = {});

  /// Runs local training step by step: `take` makes each step from its batch, `steps` tells what is
  /// known of them. `pass` names the batches as in LocalWork. Every client that can train takes
  /// `count` steps, or with 0 as many as train.* say. Counts into train_loss.
  void each_step(Steps steps, const std::function<void(LocalStep&)>& take,
                 std::optional<std::int64_t> pass = {}, std::int64_t count = 0);
  /// Returns what `codec` leaves of every client's row of [C, P] in local step `step`. Nothing
  /// travels.
  Rows compressed(const Rows& rows, const Codec& codec, std::int64_t step) const;

  /// Goes once through a share of every client's training samples, for what a method measures
  /// beside local training. `sampled` says how the share is chosen. Counts into the round's
  /// simulated time and its gradients, not into train_loss. `fedhpc plan` takes it to be as long as
  /// local training.
  void each_batch(double share, std::int64_t pass, const std::function<void(LocalStep&)>& take,
                  Sampled sampled = Sampled::Drawn);

  /// Returns a block of some of the clients; their ids keep the order of clients(). The new block
  /// must not outlive `clients`.
  Block only(std::span<const std::int64_t> clients) const;

  /// Stores row c of `rows` [C, P] for clients()[c]. A client without any local step has not
  /// trained: it keeps its old row.
  void keep(StoredRows& store, const Rows& rows);
  /// Stores batch norm's statistics in `rows` as the clients' own where those stay with clients;
  /// elsewhere does nothing. Call it with what a client has made of a model it received.
  void keep_buffers(const Rows& rows);

  /// Sends every client's row of [C, P] and returns what the server receives; in edge rounds the
  /// client's edge receives it. Books one payload per client. With privacy.clip what it receives is
  /// clipped, and has the noise of the sum in one row.
  Rows upload(const Rows& rows, const Codec& codec = dense_codec());
  /// Sends whole models. Where statistics stay with the clients, the server has 0 in their place in
  /// a change, and those of the initial model in a model.
  Rows upload_models(const Rows& models, const Codec& codec = dense_codec());

  /// Draws the columns of a model that travel for each client, [C, P] of type bool. Books one
  /// payload of them per client.
  Tensor send(Direction direction, const RandomColumns& columns);

  /// Returns one client's training samples as training sees them but for augmentation: features
  /// [n, D] float64. A client may tell the server about its data from them. Costs n D numbers.
  Tensor samples_of(std::int64_t client) const;

  /// Returns what the head of `model` [1, P] sees of one client's training samples, without
  /// augmentation. A client fits a classifier of its own to them. Counts nowhere.
  Embedded embed(const Rows& model, std::int64_t client) const;

  /// The weight of each client, [C]: its training samples, the batches of one epoch of them, or 1
  /// (0 without training samples). They stay as long as the block.
  std::span<const double> weights(Weighting weighting);

  /// Scores models that the round does not keep: the accuracy of row c of `models` [C, P] on the
  /// test samples of clients()[c]. NaN without test samples, and in a round without evaluation,
  /// where it costs nothing.
  std::vector<double> evaluate(const Rows& models);

  /// Adds one value per client [C] to one of the method's own metrics. The metric is the mean, or a
  /// quantile, over clients that have trained and whose value is not NaN.
  void note(const std::string& metric, std::span<const double> values);

  /// As note, of what clients receive: those that have not trained count as well.
  void note_received(const std::string& metric, std::span<const double> values);

 private:
  /// One row for each client.
  Rows of_clients(const Rows& models) const;
  Rows of_clients(const EdgeRows& models);
  std::int64_t steps_of(std::int64_t client) const;
  /// Clips changes and adds the noise of their sum, as privacy.* say.
  void make_private_(const Rows& changes);
  /// What has arrived of every client's row, in memory of its own where the server changes it.
  Rows from_clients(const Rows& rows, const Codec& codec);
  /// Counts the steps and losses of a local training.
  void book_training(const std::vector<TrainStatistics>& trained);
  /// Tells the clock how many gradients each client has taken.
  void book_gradients(const std::vector<TrainStatistics>& taken);

  RoundState& state_;
  std::span<const std::int64_t> clients_;
  std::vector<std::int64_t> edges_;
  std::map<Weighting, std::vector<double>> weights_;  // a kind's stay where they are
};

}  // namespace fedhpc
