#pragma once

#include <cstdint>
#include <functional>
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

/// C clients in hand: some participants of a round on this rank, one row each.
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
  bool trains(std::int64_t client) const;  ///< whether a local training of it has a step

  /// What every client receives, [C, P], of one model [1, P], of a model of its own, row c of
  /// [C, P], or of its edge's. Books one payload per client, which has room for so many bytes
  /// `beside` the model.
  Rows download(const Rows& models, const Codec& codec = dense_codec(), std::int64_t beside = 0);
  Rows download(const EdgeRows& models, const Codec& codec = dense_codec());

  /// Local training of every client from its row of `start` [C, P]; gives the trained rows. `work`
  /// names the pass whose batches are used and adds a penalty. Counts into train_loss.
  Rows train(const Rows& start, const LocalWork& work = {});

  /// Local training step by step, `take` making each from its batch; `steps` says what is known of
  /// them. `pass` names the batches as in LocalWork. Counts into train_loss.
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
  /// Counts what a local training has done.
  void book_training(const std::vector<TrainStatistics>& trained);
  /// Tells the clock of the gradients each client has taken.
  void book_gradients(const std::vector<TrainStatistics>& taken);

  RoundState& state_;
  std::span<const std::int64_t> clients_;
  std::vector<std::int64_t> edges_;
  std::vector<double> weights_;
};

}  // namespace fedhpc
