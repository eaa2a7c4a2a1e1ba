#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// TDPFed: Q. Wang et al., "Tensor Decomposition based Personalized Federated Learning", Algorithm
/// 1 with Stages 1 to 3.
///
///   min over A of sum_k p_k F_k(A),
///   F_k(A) = min_theta f_k(theta) + lambda/2 ||theta - [[A1, ..., AN]]||^2        (1), (2)
///
/// Per participant k, tau times from A_k = A_t:
///
///   theta_k ~ argmin f_k(theta; B_k) + lambda/2 ||theta - [[A_k]]||^2             (13)
///   A_k    <- A_k - eta dF_k/dA_k, by Adam                                        (17)
///
/// Then the server:
///
///   AFM   A_{t+1} = (1 - beta) A_t + beta sum_k p_k A_k                           (18)
///   ACT   omega_{t+1} = (1 - beta) [[A_t]] + beta sum_k p_k [[A_k]]               (19)
///         omega_{t+1} ~ [[A_{t+1}]]                                               (20)
///
///   paper    code                      limit case
///   T        run.rounds
///   tau      train.local_steps         (or epochs) t' of one batch B_k each
///   s        algorithm.inner_steps     Nesterov steps on theta, equation (13)
///   mu       algorithm.momentum        of these; 0: plain gradient steps
///   s'       algorithm.factor_steps    Adam steps on the factors, equation (17)
///   eta_p    algorithm.personal_lr     of theta
///   eta      train.lr                  of the factors; 0: they stay
///            algorithm.factor_solver   adam; fit: in place of (17) A_k is a decomposition of
///                                      theta_k, and eta, s' do not act
///            algorithm.fit_sweeps      of least squares for a kernel, in (20) and with fit
///   lambda   algorithm.lambda
///   beta     algorithm.beta            1: the plain mean; 0: the factors stay
///   R        model.rank, or model.compression by (21), (22)
///   AFM, ACT algorithm.aggregate       the same with one client and beta = 1
///            algorithm.broadcast       factors; tensor: that too, and theta starts from it
///
/// Deviations, and choices where the paper is silent:
/// - Biases, norms, embeddings and recurrent layers stay full; they are pulled towards their own
///   copy by the same quadratic term.
/// - The gradient of the factors is taken from the residual [[A]] - theta, which is (23) in exact
///   numbers. In float32 (23) loses its last digits, of which Adam makes full steps. (15) is
///   printed without its sign.
/// - All factors move at once in a step of Adam; the text alternates between them.
/// - Adam starts afresh in every round, Nesterov's velocity with every batch; theta starts a round
///   at [[A_t]] and goes on from batch to batch. Its momentum mu (algorithm.momentum) is not given:
///   0.5. Steps are stable for eta_p (lambda + L) < (2 + 2 mu) / (1 + 2 mu), with L the largest
///   curvature of f. With 0.9 the paper's runs on MNIST diverge.
/// - ACT's new factors (20) come from a truncated singular value decomposition of each matrix and
///   from algorithm.fit_sweeps of alternating least squares for kernels, starting at the old ones.
/// - Clients get the factors and compose the tensor themselves; broadcast = tensor sends both, as
///   the text says, and under ACT lets theta start from the averaged tensor.
/// - p_k are shares of samples, as in (1); (18) prints batch sizes, which are all the same.
/// - Clients are drawn before they train, which is the same for those drawn.
class TDPFed final : public Algorithm {
 public:
  Traits traits() const override {
    return {.models = Models::Both, .factorisations = {.names = {"cp"}}};
  }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Aggregate { FactorMatrices, ComposedTensor };
  enum class Broadcast { Factors, Tensor };
  enum class FactorSolver { Adam, Fit };

  /// The models of a block's clients.
  struct Clients;

  Rows composed() const;  // [1, P]  [[A_t]]
  /// ClientUpdate of Algorithm 1: A_k after tau local steps, [C, Q].
  Rows client_update(Block& block);
  void train_personal_(LocalStep& step, Clients& all);
  void train_factors_(LocalStep& step, Clients& all);
  void note_errors(Block& block, const Clients& all) const;
  void note_factor_norms(Round& round) const;

  double lambda_ = 12;
  double personal_lr_ = 0.08;
  double momentum_ = 0.5;
  std::int64_t inner_steps_ = 5;
  std::int64_t factor_steps_ = 17;
  double beta_ = 1;
  Aggregate aggregate_ = Aggregate::FactorMatrices;
  Broadcast broadcast_ = Broadcast::Factors;
  FactorSolver solver_ = FactorSolver::Adam;
  std::int64_t fit_sweeps_ = 10;
  AveragingOptions averaging_;

  std::unique_ptr<Codec> codec_;            // of uploads
  std::unique_ptr<RowOptimizer> nesterov_;  // of theta
  std::unique_ptr<RowOptimizer> adam_;      // of the factors
  FactorMap* map_ = nullptr;
  Rows factors_;                    // [1, Q]  A_t
  Rows tensor_;                     // [1, P]  [[A_t]], of ACT the mean omega_t
  StoredRows* personal_ = nullptr;  // theta_k
};

}  // namespace fedhpc
