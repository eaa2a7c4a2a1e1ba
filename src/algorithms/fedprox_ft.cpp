#include "fedhpc/algorithms/fedprox_ft.hpp"

namespace fedhpc {

void FedProxFT::declare(OptionSet& options) {
  options.add("algorithm.mu", mu_, at_least(0.0),
              "weight of the proximal term mu/2 ||w - w_t||^2 of the training after fine-tuning; 0 "
              "is fedavg_ft");
  FedAvgFT::declare(options);
}

}  // namespace fedhpc
