#pragma once

#include <optional>
#include <span>

#include "fedhpc/core/options.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/state_visitor.hpp"

namespace fedhpc {

/// The server's step along the mean update Delta of a round, for every method whose server moves
/// one model w by such a mean. With beta1, beta2 and tau of the keys `server.*`:
///
///   sgd        w <- w + eta Delta
///   momentum   m <- beta m + Delta,  w <- w + eta m                                   FedAvgM
///   adagrad    v <- v + Delta^2                                                       FedAdagrad
///   adam       v <- beta2 v + (1 - beta2) Delta^2                                     FedAdam
///   yogi       v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)                         FedYogi
///   the last three:  m <- beta1 m + (1 - beta1) Delta,  w <- w + eta m / (sqrt(v) + tau)
///
/// FedAvgM: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
/// Visual Classification", 2019. The others: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar,
/// McMahan, "Adaptive Federated Optimization", ICLR 2021, Algorithm 2, without bias correction.
///
///   paper      key                    meaning
///   eta        server.lr              auto: 1, and 0.01 with a rule that adapts, whose steps are
///                                     nearly as long as eta in each column; 1 with sgd is w + Delta
///                                     to the last bit, without another pass
///   beta       server.momentum        0: sgd
///   beta1      server.beta1           the paper's FedAdagrad has 0
///   beta2      server.beta2
///   tau        server.eps             m_0 = 0 and v_0 = tau^2
///
/// Delta is sum_k p_k (w_k - w), by the method's weights. Batch norm's statistics are averaged and
/// take part in nothing else. A round in which nobody trains has Delta = 0: momentum goes on.
///
/// Methods with a server step of their own have no such keys: pfedme and tdpfed (beta), dsgd and
/// simnet (train.lr), ef21p, fedbat (a change that is compressed), feddyn, fedselect, fedcomloc,
/// sfedhp, pfedsop.
class ServerOptimizer {
 public:
  void declare(OptionSet& options);
  /// Starts at the initial state, for models like `model` [1, P].
  void start(const Rows& model);
  /// Starts anew in the columns of these fields of the model.
  void forget_(std::span<const Field> fields);
  /// Moves `model` [1, P] along the mean update [1, P]. Call it once a round.
  void step_(Rows& model, const Rows& update);
  void visit_state(StateVisitor& state);
  /// The same with the model that the steps move, as rows of this name.
  void visit_state(StateVisitor& state, const std::string& name, Rows& model) {
    state.rows(name, model);
    visit_state(state);
  }

 private:
  enum class Kind { Sgd, Momentum, Adagrad, Adam, Yogi };

  bool adapts() const { return kind_ != Kind::Sgd && kind_ != Kind::Momentum; }
  double rate() const { return lr_.value_or(adapts() ? 0.01 : 1); }
  /// The rule's step at rate 1, [1, P].
  Rows direction(const Rows& update) const;

  Kind kind_ = Kind::Sgd;
  std::optional<double> lr_;
  double momentum_ = 0.9;
  double beta1_ = 0.9;
  double beta2_ = 0.99;
  double eps_ = 1e-3;
  Rows mean_;         // [1, P]  m, where the rule has one
  Rows accumulator_;  // [1, P]  v, where the rule has one
};

}  // namespace fedhpc
