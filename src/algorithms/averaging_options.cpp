#include "fedhpc/algorithms/averaging_options.hpp"

namespace fedhpc {

void AveragingOptions::declare(OptionSet& options) {
  options.add("algorithm.weighting", weighting,
              Names<Weighting>{{"samples", Weighting::Samples}, {"uniform", Weighting::Uniform}},
              "weight of a client in the mean: its training samples, or the same for all");
  declare_codec(options, "algorithm.codec", codec,
                "what uploads become on the wire (fedhpc list codecs); downloads are dense");
}

}  // namespace fedhpc
