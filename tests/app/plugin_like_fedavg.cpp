// A method that has the name and the functions of one of fedhpc's own, as a copy of it has, and does something else.
// With FEDHPC_TEST_PROMISE it tells of models of clients that it does not hand over.

#include <cstdlib>

#include "fedhpc/plugin.hpp"

namespace fedhpc {

class FedAvg final : public Algorithm {
 public:
  Traits traits() const override {
    return {.models =
                std::getenv("FEDHPC_TEST_PROMISE") == nullptr ? Models::Global : Models::Both};
  }
  void declare(OptionSet&) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  Rows model_;
};

void FedAvg::declare(OptionSet&) {}

void FedAvg::initialise(const Setup& setup) { model_ = setup.initial_model(); }

// Nobody's training counts.
void FedAvg::round(Round& round) {
  round.each_block([&](Block& block) { block.train(block.download(model_)); });
}

void FedAvg::evaluate(Evaluation& evaluation) { evaluation.global(model_); }

void FedAvg::visit_state(StateVisitor& state) { state.rows("model", model_); }

}  // namespace fedhpc

FEDHPC_PLUGIN(plugin) {
  plugin.add_algorithm<fedhpc::FedAvg>("like_fedavg", "has FedAvg's name in the sources");
}
