#pragma once

#include <memory>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/shifted_training.hpp"

namespace fedhpc {

/// FedComLoc: Scaffnew (ProxSkip) with models that are compressed in one of three places.
///
/// Yi, Meinhardt, Condat, Richtarik: "FedComLoc: Communication-Efficient Distributed Training of
/// Sparse and Quantized Models", 2024, Algorithm 1. Scaffnew: Mishchenko, Malinovsky, Stich,
/// Richtarik: "ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication Acceleration!
/// Finally!", ICML 2022.
///
///   y_i  <- y_i - gamma (g_i(y_i) - h_i)                  K local steps from y_i = x
///   x+   <- mean_S y_i
///   h_i  <- h_i + p / gamma (x+ - y_i)                    on the participants S
///
///   -Com      y_i <- C(y_i) before it is sent; the mean and h_i take that
///   -Local    gradients are g_i(C(y_i))
///   -Global   x+ <- C(x+) before it is sent; clients and h_i take that
///
///   paper      code                     meaning
///   x          global_                  model of the server
///   h_i        controls_                of a client, in the store; starts at 0
///   gamma      train.lr                 above 0, and one in a round
///   p          algorithm.probability    of a local step to be the last of its round
///   C          algorithm.codec          TopK: top_k; Q_r: qsgd with codec_levels = 2^r
///   variant    algorithm.compress       com, local, global
///   S          topology.participation   the clients that communicate when the coin says so
///
/// K is geometric with mean 1/p: the round ends with the first coin that shows 1. All clients have
/// the same coins, those of (seed, Purpose::Cohort, pass 2, round). train.local_steps and
/// local_epochs do not act.
///
/// A participant needs x+ twice: for its h_i, and to start from where it takes part again. It
/// receives it once, when the next round begins, whether it takes part in that or not. The h_i in
/// the store are therefore those before that.
///
/// Means are weighed by algorithm.weighting, uniform by default, as in the paper. The h_i then sum
/// to 0 if all clients take part, but for -Global. With some clients each keeps its h_i until it
/// takes part again. A client that cannot train has h_i = 0. Batch norm's statistics have no h_i,
/// are never compressed, and are averaged. train.clip_norm shortens the loss's gradient.
///
/// Limit case: without compression, at p = 1, with all clients taking part and weighed alike, h_i
/// drop out of the mean. Rounds are then steps of gradient descent. With h_i = 0, as in round 1, a
/// round is FedAvg's of K local steps.
/// Reading: -Com replaces y_i by C(y_i), as in the algorithm box, so that the h_i see what the
/// server has. By -Local x stays as it is; the model evaluated is x.
class FedComLoc final : public Algorithm {
 public:
  Traits traits() const override {
    return {.mean_steps = 1 / probability_, .divides_by_rate = true};
  }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Compress { Com, Local, Global };

  /// K of a round.
  std::int64_t draw_steps(std::int64_t round) const;
  /// Sends x to a block's clients, [C, P]; those of the round before add what it means for h_i.
  Rows receive(Block& block);
  /// The clients of a block that have trained in the round before.
  std::vector<std::int64_t> waiting_of(const Block& block) const;

  double probability_ = 0.1;
  Compress where_ = Compress::Com;
  AveragingOptions averaging_{.weighting = Weighting::Uniform};
  std::uint64_t seed_ = 0;
  double lr_ = 0;
  std::unique_ptr<Codec> codec_;
  ShiftedTraining training_;            // Q of P columns
  Rows global_;                         // [1, P]  x
  std::int64_t payload_bytes_ = 0;      // of x where the server has compressed it
  Rows moved_;                          // [1, Q]  p / gamma (x+ - x) of the last round
  StoredRows* controls_ = nullptr;      // h_i, without moved_ for clients of the last round
  ScalarColumn* last_round_ = nullptr;  // in which the client has trained
};

}  // namespace fedhpc
