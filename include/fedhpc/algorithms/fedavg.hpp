#pragma once

#include <optional>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"
#include "fedhpc/rounds/random_columns.hpp"

namespace fedhpc {

/// Federated averaging.
///
/// McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep
/// Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
///
///   paper     code                          meaning
///   w_t       global_                       global model after round t
///   C         topology.participation        fraction of clients per round; 1: all
///   E, B      train.local_epochs (or local_steps), train.batch_size
///   eta       train.lr                      0: the model stays as it is
///   n_k       block.weights                 training samples of client k
///   m / d     algorithm.transmit_fraction   share of the columns that travels, TDPFed's 1/CR
///             algorithm.unsent              keep, zero, rescale: what stands in for the others
///
/// Deviation: the server averages the differences w_k - w_t instead of the models w_k. Both give
/// w_{t+1} = sum_k n_k/n w_k; differences are small, so rounding is too.
///
/// With algorithm.transmit_fraction below 1 only some columns travel, chosen at random for every
/// client, round and direction: FedAvg (s.a.r.), the baseline of TDPFed's Table III. The paper does
/// not say what stands in for the others (algorithm.unsent):
///
///   keep      what the receiver has: a client its last trained model, the server w_t; a column is
///             averaged over the clients that have sent it
///   zero      0, which enters the mean and shrinks the model
///   rescale   0, and what travels is multiplied by d / m: the mean is right in expectation
class FedAvg final : public Algorithm {
 public:
  Traits traits() const override { return {.averaged_uploads = is_sparse() ? 0 : 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  enum class Unsent { Keep, Zero, Rescale };

  bool is_sparse() const { return transmit_fraction_ < 1; }
  void sparse_round(Round& round);
  void sparse_round_with_zeros(Round& round);

  AveragingOptions averaging_;
  ServerOptimizer server_;
  double transmit_fraction_ = 1;
  Unsent unsent_ = Unsent::Keep;
  std::unique_ptr<Codec> codec_;          // of uploads
  std::optional<RandomColumns> columns_;  // those that travel, where not all do
  Rows global_;                           // [1, P]
  StoredRows* last_ = nullptr;            // Unsent::Keep: each client's last trained model
};

}  // namespace fedhpc
