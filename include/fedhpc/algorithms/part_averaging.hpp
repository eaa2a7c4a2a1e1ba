#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// Federated averaging of some columns of a model; the others stay with the clients:
///
///   (s_i, o_i) <- local training from (s^t, o_i),   s^{t+1} = s^t + sum_i p_i (s_i - s^t)
///
///   symbol   code       meaning
///   s^t      shared_    the columns that travel, after round t
///   o_i      own_       the columns of client i's own, which start as the initial model's
///
/// There is no whole global model: /model/global holds s. A client's own model is (s^{t+1}, o_i),
/// what it would start from next. With nothing of its own this is FedAvg, with nothing shared
/// LocalOnly, to the last bit. FedPer, LG-FedAvg, FedBN and FedRep share it.
class PartAveraging : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Shared, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "shared", shared_); }

 protected:
  /// The columns that travel; without a layout before initialise().
  const RowPart& shared_part() const { return shared_part_; }
  /// Says which columns of a model stay with the clients.
  virtual RowPart own_part(const LayoutPtr& model) const = 0;
  /// Trains whole models locally from `start` [C, P]; by default all columns together.
  virtual Rows train(Block& block, const Rows& start) const { return block.train(start); }

 private:
  /// Joins the models of some clients [C, P] from what is shared: a row of each, or one for all.
  Rows joined(const Rows& shared, std::span<const std::int64_t> clients) const;

  AveragingOptions averaging_;
  ServerOptimizer server_;
  std::unique_ptr<Codec> codec_;  // of uploads
  LayoutPtr layout_;              // of whole models
  RowPart shared_part_;
  RowPart own_part_;
  Rows shared_;                // [1, S]
  StoredRows* own_ = nullptr;  // [clients of this rank, P - S]; null: S is P
};

}  // namespace fedhpc
