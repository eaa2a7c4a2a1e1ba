#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// FedHM: D. Yao, W. Pan, M. J. O'Neill, Y. Dai, Y. Wan, H. Jin, L. Sun: "FedHM: Efficient
/// Federated Learning for Heterogeneous Models via Low-rank Factorization", 2021; as the baseline
/// of FedMUD, with the same rank on every client.
///
///   U_t, V_t   <- truncated singular value decomposition of W_t, layer by layer
///   U_k, V_k   <- local training from there, w = U V^T
///   W_{t+1}    <- sum_k p_k U_k V_k^T                                    recover, then average
///
/// Layers left in full and batch norm are averaged as they are. Global metrics are those of W_t, in
/// full. Deviations: without the penalty on ||U V^T||; train.weight_decay acts on factors. Clients
/// are weighed by algorithm.weighting; the authors' program weighs them equally.
class FedHM final : public Algorithm {
 public:
  Traits traits() const override {
    return {.factorisations = {.names = {"low_rank"}, .exclude = {"first", "last"}},
            .factor_draw = {.range = {}, .to_be_fitted = true}};
  }
  void declare(OptionSet& options) override {
    averaging_.declare(options, LinkOptions::Payloads::ModelsUp);
    server_.declare(options);
  }
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  /// Notes || W - U V^T || / || W || over the factorised columns.
  void note_truncation(Round& round) const;

  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  FactorMap* map_ = nullptr;
  Rows model_;    // [1, P]  W_t
  Rows factors_;  // [1, Q]  U_t, V_t
};

}  // namespace fedhpc
