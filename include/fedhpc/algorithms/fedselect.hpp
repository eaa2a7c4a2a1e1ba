#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// FedSelect: every client selects the parameters it personalizes, those that move most, and shares
/// the others.
///
/// Tamirisa, Xie, Bao, Zhou, Arel, Shamsian: "FedSelect: Personalized Federated Learning with
/// Customized Selection of Parameters for Fine-Tuning", CVPR 2024. Client k in a round:
///
///   start        (1 - m_k) theta_g + m_k v_k
///   LocalAlt     trainings of the columns in m_k, then one of the others
///   theta_g      a column's mean over the participants that share it by m_k
///   GradSelect   of the columns still shared, those with the largest |end - start| enter m_k
///
///   paper     code                        meaning
///   theta_g   global_                     global model; a column that nobody shares stays
///   m_k       masks_                      1: personal, 0: shared; at first all 0
///   v_k       personal_                   the client's model after its last training
///   p         algorithm.select_rate       share of a tensor's shared columns that become personal
///   alpha     algorithm.select_limit      no more of a tensor becomes personal; 0, with one
///                                         alternation: FedAvg
///             algorithm.select_every      rounds of a client from one GradSelect to the next
///             algorithm.personal_passes   LocalAlt's trainings of columns in m_k; 0: these stay
///             algorithm.alternations      how often a round has LocalAlt
///
/// As in the authors' program (lapisrocks/fedselect), tensors are selected from one by one, and
/// biases, a norm's shift too, always stay shared. With S of a tensor's s columns still shared,
/// floor(p S + 1/2) become personal, at most so many that floor(alpha s + 1/2) are. Of equal
/// magnitudes the first columns are taken.
///
/// A step takes the gradient of the whole model, clipped as a whole, and the frozen columns are put
/// back behind it. Each training has an optimizer and batches of its own. One of personal columns
/// is left out while a client has none. Batch norm's statistics are shared: the training of
/// personal columns leaves them alone.
///
/// Both ends know m_k, so that shared columns travel as they are, without places. A client that
/// has selected also sends its new m_k, a bit for every trainable column and one number.
///
/// A client's own model is what it would start from next. The global model is scored beside it. In
/// alternation a, from 0, with q = personal_passes, the shared columns have the batches of pass
/// a (1 + q). The personal ones, which come first, have those of the q passes behind it.
///
/// Deviations: a client is averaged by algorithm.weighting (the paper's equally). The authors'
/// program compares with the end of the last selection, not with the start of the round. It takes
/// all columns that tie. A tensor's share of personal columns may pass the limit by its last step.
/// A column that has just become personal gets the global value.
class FedSelect final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  /// Joins what clients start from, [C, P], of their own where `personal` [C, P], of `global`
  /// elsewhere: a row of each, or one for all.
  Rows joined(const Tensor& personal, std::span<const std::int64_t> clients,
              const Rows& global) const;
  /// Trains personal and shared columns in turn from `start` [C, P]; `counts` [C] are those
  /// personal.
  Rows local_alt(Block& block, const Rows& start, const Tensor& personal,
                 const std::vector<std::int64_t>& counts) const;
  /// Trains `model` [C, P] once on the batches of `pass`; the columns in `frozen` [C, P] stay.
  void train_(Block& block, const Rows& model, const Tensor& frozen, std::int64_t pass) const;
  /// Selects for the clients whose turn it is, by the magnitudes of `change` [C, P], and tells the
  /// server.
  void grad_select(Block& block, const Rows& masks, const Rows& change,
                   std::vector<std::int64_t>& counts) const;
  /// Counts a training of each client that trains. Returns the places of those that select now.
  std::vector<std::int64_t> take_turns(Block& block) const;
  /// Selects in the mask [1, P] of one client, tensor by tensor, both float64 in host memory.
  /// Returns how many columns.
  std::int64_t select_(const Tensor& mask, const Tensor& change) const;
  void note(Block& block, const std::vector<std::int64_t>& counts) const;

  double rate_ = 0.25;  // p
  double limit_ = 0.8;  // alpha
  std::int64_t every_ = 1;
  std::int64_t personal_passes_ = 1;
  std::int64_t alternations_ = 1;
  Weighting weighting_ = Weighting::Samples;

  std::unique_ptr<RowOptimizer> optimizer_;
  RowPart trainable_;
  std::unique_ptr<Codec> bits_;     // of masks
  Rows global_;                     // [1, P]
  StoredRows* personal_ = nullptr;  // [clients of this rank, P]
  StoredRows* masks_ = nullptr;     // [the same, P], numbers 0 and 1
  ScalarColumn* turns_ = nullptr;   // and the trainings they have had
};

}  // namespace fedhpc
