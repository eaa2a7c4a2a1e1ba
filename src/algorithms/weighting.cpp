#include "fedhpc/algorithms/weighting.hpp"

namespace fedhpc {

void declare_weighting(OptionSet& options, Weighting& weighting) {
  options.add("algorithm.weighting", weighting,
              Names<Weighting>{{"samples", Weighting::Samples},
                               {"batches", Weighting::Batches},
                               {"uniform", Weighting::Uniform}},
              "weight of a client, and of an edge at the cloud, in the mean: its training samples, "
              "the batches of an epoch, or the same for all");
}

}  // namespace fedhpc
