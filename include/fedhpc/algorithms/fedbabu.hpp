#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// FedBABU: the body is trained and averaged under a head that nobody ever trains; clients
/// fine-tune the outcome.
///
/// Oh, Kim, Yun: "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR
/// 2022, Algorithm 1.
///
///   paper           code                     meaning
///   theta_ext       global_, its body        averaged after every round
///   theta_cls       global_, its head        the initial model's, in all rounds and clients
///   tau             train.local_epochs       (or local_steps)
///   (fine-tuning)   algorithm.fine_tune      of all, the head, or the body
///
/// Only the body travels, batch norm with it. The global model, body and initial head, is scored
/// beside each client's own. That is the global one after fine-tuning of algorithm.fine_tune's
/// columns, on batches of the evaluation. Fine-tuning is as long as a local training, and nobody
/// keeps the outcome. The paper fine-tunes the whole model, and compares that with the body or the
/// head alone.
///
/// A model that is nothing but a head stays the initial one; nothing travels.
///
/// Deviation: the paper's number of fine-tuning epochs is one of its own; here it is a local
/// training's.
class FedBABU final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  enum class FineTune { All, Head, Body };

  FineTune fine_tune_ = FineTune::All;
  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  RowPart body_;
  Rows global_;  // [1, P]
};

}  // namespace fedhpc
