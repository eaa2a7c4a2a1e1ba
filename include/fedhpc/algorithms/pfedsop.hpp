#pragma once

#include <optional>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

/// Algorithm 1 of pFedSOP: a client's second-order step along a mixture of its own gradient update
/// and the global one.
struct Personalisation {
  double personal_lr = 0.01;            ///< eta_1
  double rho = 1;                       ///< above 0
  double lambda = 1;                    ///< of the Gompertz function (14)
  std::optional<double> beta_override;  ///< in place of what follows from the angle

  struct Step {
    double angle;   ///< theta between Delta_i and Delta [rad]
    double beta;    ///< weight of Delta
    double scale;   ///< of Delta^p
    double length;  ///< ||x_it - x_i(t-1)||
  };
  /// From ||Delta_i||^2, <Delta_i, Delta> and ||Delta||^2.
  Step step_along(double own_square, double product, double square) const;
  /// models [n, P] <- last - eta_1 [Delta^p Delta^p^T + rho I]^-1 Delta^p on the part's columns
  /// (19), for n clients. `own`, `global` [n, d]: Delta_i, Delta; `square`: ||Delta||^2. Reads
  /// `own` and `global` twice and `last` once, writes `models` once. Waits for the rows' products.
  std::vector<Step> step(const RowPart& part, const Rows& models, const Rows& last, const Rows& own,
                         const Rows& global, double square) const;
};

/// pFedSOP: clients keep models of their own and exchange gradient updates. Before they train, they
/// take a second-order step along a mixture of their own update and the global one.
///
/// Sen, Mohan: "pFedSOP: Accelerating Training Of Personalized Federated Learning Using
/// Second-Order Optimization", Algorithms 1 to 3.
///
///   cos theta = <Delta_i, Delta> / (||Delta_i|| ||Delta||)
///   beta      = 1 - exp(-exp(-lambda (theta - 1)))                                 (14)
///   Delta^p   = (1 - beta) Delta_i + beta Delta                                    (15)
///   x_it      = x_i(t-1) - eta_1 (Delta^p Delta^p^T + rho I)^-1 Delta^p            (19)
///   Delta_it  = (x_it^0 - x_it^T) / eta_2          after T steps of SGD            (11)
///   Delta_t   = 1/K' sum_i Delta_it                                                (13)
///
///   paper       code                     limit case
///   x           initial_                 what every client starts from
///   x_it        start                    personalized model, before local training
///   Delta_it    updates_ [d]             sum of the gradients of client i's last training
///   Delta_t     update_ [1, d]           mean of the participants' Delta_it
///   eta_1       algorithm.personal_lr    0: no step of Algorithm 1
///   eta_2       train.lr                 above 0
///   rho         algorithm.rho            large: a gradient step along Delta^p of rate eta_1 / rho
///   lambda      algorithm.lambda         0: beta = 1 - 1/e for everybody; large: 1 below an angle
///                                        of 1 rad, 0 above
///   beta        (14)                     algorithm.beta_override replaces it: 0 uses a client's
///                                        own update alone, 1 the global one alone
///   (19)        algorithm.personalise    false: no step, every client trains alone
///   (kept)      algorithm.persist        before: x_it goes on to the next round; after: x_it^T
///   (own)       algorithm.evaluate       before or after: which of these is scored
///
/// beta falls with the angle: where both updates point the same way the global one is taken, where
/// they oppose each other the client's own. The cosine with a zero update counts as 0.
///
/// Readings, and deviations:
/// - (18) is Delta^p / (rho + ||Delta^p||^2), the same number in one term (the two printed ones
///   cancel in float32). The step is at most eta_1 / (2 sqrt(rho)) long.
/// - Algorithm 3 as printed keeps x_it and drops what the SGD of Algorithm 2 has reached; the model
///   would then move by no more than that bound each time. By default the client keeps, and is
///   scored on, the model after SGD (algorithm.persist, algorithm.evaluate).
/// - algorithm.personalise = false leaves out Algorithm 1, the paper's "without PC": x_it is the
///   model the client has kept, and nobody uses Delta.
/// - Delta has the trainable columns. Batch-norm statistics stay with the client.
/// - From round 2 on every participant receives Delta, those that take part for the first time
///   also x. A client that cannot train keeps x and nothing else.
class PFedSOP final : public Algorithm {
 public:
  Traits traits() const override {
    return {.models = Models::Personal,
            .divides_by_rate = true,
            .averaged_uploads = 1,
            .sends_buffers = false};
  }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Moment { Before, After };  ///< of local training

  /// x_it of every client in hand, [C, P]. `received` [C, d]: Delta_{t-1}, undefined in round 1;
  /// `square`: ||Delta_{t-1}||^2.
  Rows personalised(Block& block, const Rows& received, double square);

  Personalisation personalisation_;
  bool personalise_ = true;
  Moment persist_ = Moment::After;
  Moment evaluated_ = Moment::After;
  AveragingOptions averaging_{.weighting = Weighting::Uniform};
  std::unique_ptr<Codec> codec_;  // of uploads
  double lr_ = 0;                 // eta_2
  RowPart trainable_;
  Rows initial_;                   // [1, P]
  Rows update_;                    // [1, d]
  StoredRows* models_ = nullptr;   // x_i as kept, [clients of this rank, P]
  StoredRows* scored_ = nullptr;   // x_i as evaluated; the same rows if both are of one moment
  StoredRows* updates_ = nullptr;  // Delta_i, [clients of this rank, d]
};

}  // namespace fedhpc
