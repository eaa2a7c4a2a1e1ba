#pragma once

#include <optional>
#include <span>

#include "fedhpc/algorithms/similarity_network.hpp"
#include "fedhpc/math/fused_lasso.hpp"
#include "fedhpc/math/network_lasso.hpp"

namespace fedhpc {

/// Federated models with a shared and a personal component, the personal ones of alike clients
/// pulled together, and updates that compress. "A Fast Training Framework for Federated Model with
/// Personalized Component", draft; formulas as corrected:
///
///   min over x, Z   (1/N) sum_n f_n(M x + N z^(n)) + lambda sum over edges ||z^(i) - z^(j)||_p
///
/// Every client n receives y^(n) = M x + N z^(n) and sends nabla^(n), its gradient g^(n) drawn
/// together into plateaus. The server steps along their mean in x and solves the network lasso in
/// Z.
///
///   paper     code                            limit case
///   x         x_                              shared coordinates, [1, d_1]
///   z^(n)     z_                              personal ones of client n, [d_2]; with its store
///   M, N      shared_, personal_              algorithm.personal, algorithm.shared
///   z_1       algorithm.personal_start        zero, initial, or auto: see below
///   E, Q      algorithm.neighbours            nearest ones of each client, both ways; 0: no edges,
///                                             nodes are alone
///             algorithm.graph                 data, feature or model: what tells who is near
///             algorithm.kernel                of data: exact, fourier, or auto: exact up to 200
///                                             samples a client
///             algorithm.fourier_features      of fourier, an even number
///             algorithm.covariance_distance   of feature: frobenius or log_euclidean
///             algorithm.graph_passes          of model: local trainings before models are compared
///   a_m       algorithm.edge_weights          uniform: 1; gaussian: less the farther two are apart
///   eta_t     train.lr                        rate of x
///   eta       algorithm.personal_lr           rate of Z; a client feels one N-th; auto: eta_t
///   lambda    algorithm.lambda                0: nodes are alone; large: connected ones are equal
///   p         algorithm.p                     1, 2, infinity
///   gamma     algorithm.gamma                 0: nabla = g
///             algorithm.gamma_schedule        constant; inverse_sqrt: gamma / sqrt(t); inverse:
///                                             gamma / t
///   K         algorithm.admm_steps            at most
///             algorithm.admm_tolerance        of both relative residuals; 0: always K steps
///   rho       algorithm.admm_rho              auto: 1 / (eta (1 + mean degree))
///   (7)       FusedLasso                      exactly, by the taut string: nabla = prox of
///                                             gamma ||Lambda .||_1 at g
///   Alg. 4    NetworkLasso
///
/// Choices where the paper is silent:
/// - z_1 = 0 where the personal coordinates are the classifier's or lie over shared ones, so that
///   y_1 is or begins as the initial model; elsewhere (hidden layers at 0 do not learn) z_1 is the
///   initial model's part. algorithm.personal_start decides.
/// - Z has the rate eta / N in the objective as printed. algorithm.personal_lr = N train.lr gives
///   every client the rate train.lr of its own.
/// - Each ADMM starts from W = Z_t Q, Omega = 0.
/// - Batch-norm statistics are shared coordinates. Lambda goes over trainable ones, in their order.
/// - N counts the participants that have training samples; all weigh the same. The gradients of
///   others are 0.
/// - The draft takes one sample a step (train.batch_size = 1). With more than one local step
///   clients send sums of gradients (local_gradient).
class SimNet final : public Algorithm {
 public:
  Traits traits() const override;
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void prepare(Round& everybody) override;
  std::vector<NamedTensor> drawn_in(std::int64_t round) const override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Personal { Head, Body, Norm, All, None };
  enum class Shared { Rest, All };
  enum class Start { Auto, Zero, Initial };
  enum class GammaSchedule { Constant, InverseSqrt, Inverse };

  /// Splits the columns into personal and, where not all are, shared ones.
  static std::pair<Columns, Columns> columns_of(Personal personal);
  /// Returns z of these clients, [C, d_2].
  Rows personal_rows(std::span<const std::int64_t> clients) const;
  /// Returns y = M x + N z of these personal coordinates [C, d_2]: [C, P].
  Rows joined(const Rows& z) const;
  /// Returns nabla of each gradient, argmin_u 1/2 ||u - g||^2 + gamma_t ||Lambda u||_1. With
  /// gamma = 0 these are the gradients themselves, left in place.
  Rows drawn_together(const Rows& gradients, std::int64_t t);
  /// Z <- argmin <N^T nabla, Z> / N + lambda ||Z Q||_{1,p} + ||Z - Z_t||^2 / (2 eta), where
  /// `target` [N_r, d_2] is Z_t - eta N^T nabla / N.
  void update_personal_(Round& round, const Rows& z, const Rows& target);
  void note_sent(Block& block, const Rows& gradients, const Rows& nabla, const Rows& sent) const;
  double gamma_of(std::int64_t t) const;
  void set_graph(SimilarityGraph graph);

  Personal personal_tag_ = Personal::Head;
  Shared shared_tag_ = Shared::Rest;
  Start start_ = Start::Auto;
  double gamma_ = 0;
  GammaSchedule gamma_schedule_ = GammaSchedule::Constant;
  std::optional<double> personal_lr_;
  NetworkLassoOptions lasso_options_{.lambda = 0.01};
  SimilarityNetwork network_;
  LinkOptions links_;

  std::unique_ptr<Codec> codec_;  // of uploads
  double eta_ = 0;
  double clip_norm_ = 0;
  std::uint64_t seed_ = 0;
  LayoutPtr layout_;  // of whole models
  RowPart shared_;    // M
  RowPart personal_;  // N
  RowPart trainable_;
  Rows initial_;                   // [1, P]
  Rows x_;                         // [1, d_1]
  StoredRows* z_ = nullptr;        // [N_r, d_2]; null where d_2 = 0
  std::vector<std::int64_t> own_;  // clients of this rank, ascending
  std::int64_t clients_ = 0;       // N
  std::optional<NetworkLasso> lasso_;
  double graph_bytes_ = 0;
  FusedLasso fused_lasso_;
};

}  // namespace fedhpc
