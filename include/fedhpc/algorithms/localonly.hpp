#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Every client trains a model of its own and nobody exchanges anything: federation has to beat it.
///
/// The baseline "Local" of the personalized-learning literature, e.g. T. Li, Hu, Beirami, Smith:
/// "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, section 5.
///
///   symbol    code     meaning
///   w_k       models_  model of client k, which starts from the common initial model
///   eta       train.lr 0: all models stay there
///
/// In a round the participants go on from their own models for train.local_steps or
/// train.local_epochs, with a fresh optimizer; the others keep theirs. There is no global model.
class LocalOnly final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Personal}; }
  void declare(OptionSet&) override {}
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  StoredRows* models_ = nullptr;  // [clients of this rank, P], of the run's store
};

}  // namespace fedhpc
