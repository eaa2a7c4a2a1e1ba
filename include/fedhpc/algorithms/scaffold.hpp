#pragma once

#include <memory>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"
#include "fedhpc/algorithms/shifted_training.hpp"

namespace fedhpc {

/// SCAFFOLD: control variates c_i of the clients and c of the server correct the drift of local
/// training.
///
/// Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for
/// Federated Learning", ICML 2020, Algorithm 1.
///
///   y_i   <- y_i - eta_l (g_i(y_i) - c_i + c)                      K local steps from y_i = x
///   c_i+  <- (I)   g_i(x), the gradient on all of its samples
///            (II)  c_i - c + (x - y_i) / (K eta_l)
///   x     <- x + eta_g mean_S(y_i - x),   c <- c + |S|/N mean_S(c_i+ - c_i)
///
///   paper      code                     meaning
///   x, c       global_, control_        model and control variate of the server; c starts at 0
///   c_i        controls_                of a client, in the store; a new client has 0
///   eta_l      train.lr                 above 0, and one in a round
///   eta_g      server.lr                with server.optimizer = sgd; other rules take the mean, too
///   K          train.local_steps        or as many as train.local_epochs give a client
///   I, II      algorithm.control        gradient; steps
///   S, N       topology.participation   participants of a round, all clients
///
/// Means are weighed by algorithm.weighting, uniform by default, as in the paper. c is the mean of
/// all c_i where clients weigh the same, or all take part; else about so: a ratio of sums. What a
/// codec loses of a c_i+ - c_i stays missing in c, unless ef14 sends it later. So would what
/// privacy.* takes off or adds, round after round: they are refused. A client without a local step
/// keeps its c_i.
///
/// Both ways two messages travel, of the model and of the control variate. Batch norm's statistics
/// have no control variates and are averaged. Option I costs a pass over a client's samples, at x.
/// train.clip_norm shortens the loss's gradients; what corrects them comes after.
///
/// Limit case: algorithm.control = none freezes c_i and c at 0 and is FedAvg with the same
/// weighting; nothing but the model travels. With one client, or at equal clients that all take
/// part with full batches, c_i = c, and rounds of option I and II are FedAvg's, too.
class Scaffold final : public Algorithm {
 public:
  Traits traits() const override { return {.divides_by_rate = kind_ == Control::Steps}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Control { Gradient, Steps, None };

  void averaged_round(Round& round);
  /// c_i+ - c_i of every client, [C, Q]; 0 where it takes no step.
  Rows change_of(Block& block, const Rows& start, const Rows& trained, const Rows& own,
                 const Rows& common, double eta) const;
  /// The gradient at `at` [C, P] on all of a client's samples, [C, Q].
  Rows gradient_on_all(Block& block, const Rows& at) const;

  Control kind_ = Control::Steps;
  AveragingOptions averaging_{.weighting = Weighting::Uniform};
  ServerOptimizer server_;
  TrainOptions training_options_;
  std::unique_ptr<Codec> codec_;          // of uploads of y_i - x
  std::unique_ptr<Codec> control_codec_;  // and of c_i+ - c_i
  ShiftedTraining training_;              // Q of P columns
  Rows global_;                           // [1, P]  x
  Rows control_;                          // [1, Q]  c
  StoredRows* controls_ = nullptr;        // c_i
};

}  // namespace fedhpc
