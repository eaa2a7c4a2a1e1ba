#pragma once

#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// APFL: every client mixes a model of its own with the global one.
///
/// Deng, Kamani, Mahdavi: "Adaptive Personalized Federated Learning", arXiv:2003.13461, 2020,
/// Algorithm 1. In every local step, on one batch xi,
///
///   vbar_i  = alpha_i v_i + (1 - alpha_i) w_i
///   w_i    <- w_i - eta grad f_i(w_i; xi)
///   v_i    <- v_i - eta alpha_i grad f_i(vbar_i; xi)
///
///   paper     code                   meaning
///   w         global_                global model, FedAvg's whatever alpha
///   w_i       local                  its local version, from the w that was received
///   v_i       personal_              local model of client i, which starts from the initial model
///   alpha_i   algorithm.alpha        at first; 0: the global model, 1: local training alone
///   (rule)    algorithm.alpha_rule   fixed: alpha_i stays; adaptive: it moves once a round
///   eta       train.lr               of w, v and alpha
///
/// With algorithm.alpha_rule = adaptive the first step of a round also moves alpha_i, within
/// [0, 1]:
///
///   alpha_i <- alpha_i - eta <v_i - w_i, grad f_i(vbar_i; xi)>
///
/// A client's own model is vbar_i of the new w, what it would start from next. Batch norm's
/// statistics in v_i are those of w_i. train_loss is that of w_i. An optimizer with state has one
/// for w_i and one for v_i.
///
/// The authors' program (FedTorch) adds a term 0.02 alpha to that gradient and mixes the gradients
/// of v and w in it. The paper has neither. Clients are averaged by algorithm.weighting (the
/// paper's equally).
class APFL final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  enum class AlphaRule { Fixed, Adaptive };

  /// Trains w_i and v_i of each client from `received` [C, P]; keeps v_i and returns w_i.
  Rows client_update(Block& block, const Rows& received);
  /// Moves the alphas [C] of clients with a batch, by gradients at vbar [C, P].
  void adapt_(std::vector<double>& alphas, LocalStep& step, const Rows& apart,
              const Rows& gradients) const;

  double alpha_ = 0.5;
  AlphaRule alpha_rule_ = AlphaRule::Fixed;
  AveragingOptions averaging_;
  ServerOptimizer server_;

  double lr_ = 0;                              // eta
  std::unique_ptr<RowOptimizer> of_local_;     // of w_i
  std::unique_ptr<RowOptimizer> of_personal_;  // of v_i
  std::unique_ptr<Codec> codec_;               // of uploads
  RowPart trainable_;
  Rows global_;                     // [1, P]
  StoredRows* personal_ = nullptr;  // [clients of this rank, P]
  ScalarColumn* alphas_ = nullptr;  // of the same clients
};

}  // namespace fedhpc
