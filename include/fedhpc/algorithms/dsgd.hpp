#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Distributed stochastic gradient descent: every client sends a stochastic gradient at the global
/// model, the server takes the step. The similarity-network method with gamma = lambda = 0 and
/// nothing personal (its equation (5), Algorithms 1 and 2).
///
///   g^(n) <- gradient of f at x_t on a batch of client n
///   x_{t+1} <- x_t - eta_t (1/N) sum_n g^(n)
///
///   paper   code                   limit case
///   eta_t   train.lr               0: refused, nothing moves
///   N       all participants       algorithm.weighting = uniform as in the paper, or samples
///
/// With more than one local step the clients send the sums of their gradients along these steps.
/// The round is then FedAvg's with the same weighting, up to rounding.
class Dsgd final : public Algorithm {
 public:
  Traits traits() const override { return {.divides_by_rate = true, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override { evaluation.global(x_); }
  void visit_state(StateVisitor& state) override { state.rows("x", x_); }

 private:
  AveragingOptions averaging_{.weighting = Weighting::Uniform};
  std::unique_ptr<Codec> codec_;  // of uploads
  double eta_ = 0;
  double clip_norm_ = 0;
  Rows x_;  // [1, P]
};

}  // namespace fedhpc
