#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// FedAvg-FT: every client fine-tunes the global model before it trains on from there.
///
/// Sen, Mohan: "pFedSOP: Accelerating Training Of Personalized Federated Learning Using
/// Second-Order Optimization", section V-B2: "the global model is fine-tuned using local data
/// before being used as the initial model for local training". Per participant and round:
///
///   u_k <- local training from w^t            fine-tuned: the client's own model
///   w_k <- local training from u_k            on other batches
///   w^{t+1} = sum_k p_k w_k
///
///   symbol    code              meaning
///   w^t       global_           global model after round t
///   u_k       tuned             as long a training as w_k's (train.local_epochs, local_steps)
///   w_k       algorithm.start   fine_tuned: trained from u_k; received: from w^t
///
/// algorithm.start = received is the other reading of that sentence: w_k is trained from w^t, and
/// fine-tuning serves evaluation alone. The round is then FedAvg's (with the batches of pass 1, so
/// that both readings train w_k on the same ones).
///
/// A client's own model is scored as it would be at reception: w^{t+1} fine-tuned on batches of the
/// evaluation. What the participants had in hand at the round's reception of w^t is the series
/// reception_accuracy.
class FedAvgFT : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 protected:
  /// The term that training w_k adds to the loss of a client that has received `received` [C, P].
  virtual Penalty penalty(const Rows& /*received*/) const { return {}; }

 private:
  enum class Start { FineTuned, Received };

  Start start_ = Start::FineTuned;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  Rows global_;                   // [1, P]
};

}  // namespace fedhpc
