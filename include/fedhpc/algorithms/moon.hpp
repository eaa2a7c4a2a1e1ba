#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// MOON: federated averaging of models whose representation of a sample is held near the global
/// model's. It is driven away from that of the client's last local model.
///
/// Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1. Clients minimise
/// cross-entropy + mu l_con, with the mean over a batch of
///
///   l_con = -log(exp(sim(z, z_glob)/tau) / (exp(sim(z, z_glob)/tau) + exp(sim(z, z_prev)/tau)))
///
///   paper           code                   meaning
///   w^t             global_                global model
///   w_i^t           local                  local model of client i, from w^t
///   w_i^(t-1)       previous_              the same at the end of the client's last participation
///   z, z_glob,      z, of_global,          what the head (the last linear layer) of each of the
///   z_prev          of_previous            three sees of a sample
///   sim             ahead                  cosine similarity
///   mu              algorithm.mu           weight of the term; 0: FedAvg, bit for bit
///   tau             algorithm.temperature
///
/// In its first participation w_i^(t-1) is w^t, as in the authors' program: the term is constant
/// then. The two models that do not move work as in evaluation: no dropout, running statistics.
/// train_loss is the cross-entropy alone. A representation of zeros is similar to nothing
/// (similarity 0), and has no gradient. Where the head sees the samples themselves the term moves
/// nothing.
///
/// Deviation: the representation is what the head of the configured model sees. The paper's models
/// have two more layers below the head, a projection, which a model file can have.
class MOON final : public Algorithm {
 public:
  Traits traits() const override { return {.reads_embeddings = true, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  /// Trains w_i from `received` [C, P] against w_i^(t-1) `previous` [C, P].
  Rows client_update(Block& block, const Rows& received, const Rows& previous);
  /// Adds the gradient of the batches' mean mu l_con; all are [n, B, E].
  void add_contrast(const Tensor& z, const Tensor& of_global, const Tensor& of_previous,
                    const Tensor& gradient) const;

  double mu_ = 1;
  double temperature_ = 0.5;  // tau
  AveragingOptions averaging_;
  ServerOptimizer server_;

  std::unique_ptr<RowOptimizer> optimizer_;
  std::unique_ptr<Codec> codec_;    // of uploads
  Rows global_;                     // [1, P]
  StoredRows* previous_ = nullptr;  // [clients of this rank, P]
};

}  // namespace fedhpc
