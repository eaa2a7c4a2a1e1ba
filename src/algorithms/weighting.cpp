#include "fedhpc/algorithms/weighting.hpp"

namespace fedhpc {

void declare_weighting(OptionSet& options, Weighting& weighting) {
  options.add(
      "algorithm.weighting", weighting,
      Names<Weighting>{{"samples", Weighting::Samples},
                       {"batches", Weighting::Batches},
                       {"uniform", Weighting::Uniform}},
      "weight of a client in the mean: its training samples, the batches of an epoch, or the "
      "same for all; an edge weighs as its clients together (sfedhp, uniform: as every edge)");
}

}  // namespace fedhpc
