#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/ditto.hpp"
#include "fedhpc/algorithms/dsgd.hpp"
#include "fedhpc/algorithms/ef21p.hpp"
#include "fedhpc/algorithms/fedala.hpp"
#include "fedhpc/algorithms/fedamp.hpp"
#include "fedhpc/algorithms/fedavg.hpp"
#include "fedhpc/algorithms/fedavg_ft.hpp"
#include "fedhpc/algorithms/fedbat.hpp"
#include "fedhpc/algorithms/feddwa.hpp"
#include "fedhpc/algorithms/fedhm.hpp"
#include "fedhpc/algorithms/fedlmt.hpp"
#include "fedhpc/algorithms/fedmud.hpp"
#include "fedhpc/algorithms/fedpara.hpp"
#include "fedhpc/algorithms/fedprox.hpp"
#include "fedhpc/algorithms/fedprox_ft.hpp"
#include "fedhpc/algorithms/fedrep.hpp"
#include "fedhpc/algorithms/heurfedamp.hpp"
#include "fedhpc/algorithms/hierfavg.hpp"
#include "fedhpc/algorithms/localonly.hpp"
#include "fedhpc/algorithms/perfedavg.hpp"
#include "fedhpc/algorithms/pfedgp.hpp"
#include "fedhpc/algorithms/pfedme.hpp"
#include "fedhpc/algorithms/pfedsop.hpp"
#include "fedhpc/algorithms/sfedhp.hpp"
#include "fedhpc/algorithms/simnet.hpp"
#include "fedhpc/algorithms/tdpfed.hpp"
#include "fedhpc/algorithms/weighting.hpp"

namespace fedhpc {

const std::vector<AlgorithmInfo>& algorithm_registry() {
  static const std::vector<AlgorithmInfo> registry = {
#define FEDHPC_ALGORITHM(name, type, citation) \
  {#name, citation, [] { return std::unique_ptr<Algorithm>(std::make_unique<type>()); }},
#include "algorithms/algorithms.def"
#undef FEDHPC_ALGORITHM
  };
  return registry;
}

std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const std::string& place) {
  std::vector<std::string> names;
  for (const AlgorithmInfo& info : algorithm_registry()) {
    if (info.name == name) return info.make();
    names.push_back(info.name);
  }
  throw ConfigError(concat(place, ": key 'algorithm.name' cannot be '", name,
                           "'; allowed: one of: ", join(names), suggestion(nearest(name, names))));
}

void declare_weighting(OptionSet& options, Weighting& weighting) {
  options.add("algorithm.weighting", weighting,
              Names<Weighting>{{"samples", Weighting::Samples},
                               {"batches", Weighting::Batches},
                               {"uniform", Weighting::Uniform}},
              "weight of a client in the mean: its training samples, the batches of an epoch, or "
              "the same for all");
}

void AveragingOptions::declare(OptionSet& options, const std::string& codec_help) {
  declare_weighting(options, weighting);
  codec.declare(options, "algorithm", codec_help);
}

}  // namespace fedhpc
