#pragma once

#include "fedhpc/algorithms/part_averaging.hpp"

namespace fedhpc {

/// FedRep: clients share a body and keep a head, the classifier, of their own.
///
/// Collins, Hassani, Mokhtari, Shakkottai: "Exploiting Shared Representations for Personalized
/// Federated Learning", ICML 2021, Algorithm 1.
///
///   paper       code                     meaning
///   phi^t       shared_                  body after round t: all but the classifier
///   h_i         own_                     head of client i, which starts as the initial model's
///   tau_h       algorithm.head_passes    trainings (train.local_epochs or local_steps) of the head
///                                        before that of the body
///   optimizer   algorithm.optimizer      pass: each has its own; round: the head's share one
///   alpha       train.lr                 of both
///
/// A head moves with the body frozen, batch-norm statistics with it. Then the body moves with the
/// head frozen, for one training. Batches are new every time. Only the body travels, and batch norm
/// belongs to it. There is no whole global model: /model/global holds phi.
///
/// A client's own model is (phi^{t+1}, h_i): the body it would receive and its own head. With
/// head_passes = 1 a round visits a client's samples twice; the authors' program takes 10.
///
/// In the authors' program one SGD with momentum goes through the epochs of the head and that of
/// the body: algorithm.optimizer = round. Its biases have no weight decay: train.decay_biases =
/// false (configs/authors/fedrep.ini). A column has a velocity from its own gradients alone: the
/// body's begins at 0, and a frozen head stays. With PyTorch below 2.0 the program's head coasts
/// on.
///
/// Deviation: clients are averaged by algorithm.weighting (the paper's are of equal size).
class FedRep final : public PartAveraging {
 public:
  void declare(OptionSet& options) override;

 private:
  RowPart own_part(const LayoutPtr& model) const override;
  Rows train(Block& block, const Rows& start) const override;

  enum class Optimizer { Pass, Round };

  std::int64_t head_passes_ = 1;
  Optimizer optimizer_ = Optimizer::Pass;
};

}  // namespace fedhpc
