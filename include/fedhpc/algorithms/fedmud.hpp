#pragma once

#include <optional>

#include "fedhpc/algorithms/aggregation_record.hpp"
#include "fedhpc/algorithms/catch_up.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"
#include "fedhpc/factorisations/update_map.hpp"

namespace fedhpc {

/// FedMUD: S. Li et al., "The Panaceas for Improving Low-Rank Decomposition in
/// Communication-Efficient Federated Learning", ICML 2025. Model update decomposition, with
/// block-wise Kronecker (BKD) and aggregation-aware decomposition (AAD), or a frozen factor (+F).
///
///   W_i = W + U_i V_i^T                                    local models, W frozen          (3)
///   U <- sum_i p_i U_i, V <- sum_i p_i V_i                                                 (4)
///   W <- W + U V^T, U <- U(-a, a), V <- 0                  every s rounds                  (5)
///
///   paper              code
///   R                  run.rounds
///   s                  algorithm.reset_interval
///   a                  algorithm.init_range
///   r, k^2             model.rank, or model.compression
///   U V^T              model.factorisation = low_rank; BKD: kronecker; +F: _f; AAD (8): _aad
///   U~, V~             LAYER.U_fixed, LAYER.V_fixed: drawn with a seed that the server sends
///                      algorithm.constants: uniform; identity: matrices to check limit cases with
///   (start)            algorithm.start: update, of 0 to the initial model W; factors: all drawn,
///                      they stand for the model, with W = 0
///   E epochs, B, eta   train.local_epochs, train.batch_size, train.lr
///
/// The first and the last layer, recurrent ones, biases, norms and embeddings are trained and
/// averaged in full. What the server evaluates is W + U V^T.
///
/// A round's participant receives the mean factors of the round before. It adds them to its W where
/// they are due, and draws new ones by the seed. A client that has missed such rounds first needs
/// what was added meanwhile, or W where that is less. The series catch_up_bytes has it; as in the
/// paper it is no traffic of the rounds.
///
/// Limit cases: start = factors and s >= R is FedLMT with low_rank. U~ = I makes +F federated
/// averaging, U~ = V~ = I makes AAD that at twice the rate (algorithm.constants = identity).
/// Deviation: clients are averaged by algorithm.weighting; (4) averages equally, the public code by
/// batches.
class FedMUD final : public Algorithm {
 public:
  Traits traits() const override;
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  std::vector<NamedTensor> drawn_in(std::int64_t round) const override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Start { Update, Factors };
  enum class Constants { Uniform, Identity };

  /// The way factors are drawn when `rounds` rounds are done.
  FactorDraw draw(std::int64_t rounds) const;
  void set_constants();
  /// (5), with new factors.
  void reset(std::int64_t rounds);
  /// The number of resets before the local trainings of rounds 1 to `round`.
  std::int64_t resets_until(std::int64_t round) const;
  void catch_up(Block& block, std::int64_t round);

  std::int64_t reset_interval_ = 1;
  double init_range_ = 0.1;
  Start start_ = Start::Update;
  Constants constants_ = Constants::Uniform;
  AveragingOptions averaging_;
  ServerOptimizer server_;

  std::uint64_t seed_ = 0;
  std::unique_ptr<Codec> codec_;    // of uploads
  FactorMap* updates_ = nullptr;    // U, V -> U V^T
  std::optional<UpdateMap> model_;  // U, V -> W + U V^T
  Rows factors_;                    // [1, Q]  U, V
  std::int64_t drawn_after_ = 0;    // rounds that were done when factors were drawn last
  CatchUp catch_up_;
  AggregationRecord record_;
};

}  // namespace fedhpc
