#include "fedhpc/algorithms/fedrep.hpp"

namespace fedhpc {

void FedRep::declare(OptionSet& options) {
  options.add("algorithm.head_passes", head_passes_, count_from(1),
              "local trainings of a client's head before the one of the body (tau_h)");
  options
      .add("algorithm.optimizer", optimizer_,
           Names<Optimizer>{{"pass", Optimizer::Pass}, {"round", Optimizer::Round}},
           "how long an optimizer lives: a pass; or (authors' program) a round, so that the next "
           "head pass goes on with its momentum")
      .acts(unless("algorithm.head_passes", "1"))
      .acts(either(unless("train.optimizer", "sgd"), unless("train.momentum", "0")));
  PartAveraging::declare(options);
}

RowPart FedRep::own_part(const LayoutPtr& model) const { return {model, kHead}; }

Rows FedRep::train(Block& block, const Rows& start) const {
  Rows model = start;                                         // [C, P]  (phi^t, h_i)
  for (std::int64_t pass = 0; pass < head_passes_; ++pass) {  // h_i <- GRD(f_i(h, phi^t))
    const bool goes_on = optimizer_ == Optimizer::Round && pass > 0;
    model = block.train(model, {.pass = pass, .columns = kHead, .goes_on = goes_on});
  }
  return block.train(model, {.pass = head_passes_, .columns = kBody});  // phi_i <- GRD(f_i(h_i, .))
}

}  // namespace fedhpc
