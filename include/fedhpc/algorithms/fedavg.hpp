#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Federated averaging.
///
/// McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep
/// Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
///
///   paper     code                     meaning
///   w_t       global_                  global model after round t
///   C         topology.participation   fraction of clients per round; 1: all
///   E, B      train.local_epochs (or local_steps), train.batch_size
///   eta       train.lr                 0: the model stays as it is
///   n_k       block.weights            training samples of client k
///
/// Deviation: the server averages the differences w_k - w_t instead of the models w_k. Both give
/// w_{t+1} = sum_k n_k/n w_k; differences are small, so rounding is too.
class FedAvg final : public Algorithm {
 public:
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  AveragingOptions averaging_;
  std::unique_ptr<Codec> codec_;  // of uploads
  Rows global_;                   // [1, P]
};

}  // namespace fedhpc
