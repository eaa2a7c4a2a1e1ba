#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/apfl.hpp"
#include "fedhpc/algorithms/ditto.hpp"
#include "fedhpc/algorithms/dsgd.hpp"
#include "fedhpc/algorithms/ef21p.hpp"
#include "fedhpc/algorithms/fedala.hpp"
#include "fedhpc/algorithms/fedamp.hpp"
#include "fedhpc/algorithms/fedavg.hpp"
#include "fedhpc/algorithms/fedavg_ft.hpp"
#include "fedhpc/algorithms/fedbabu.hpp"
#include "fedhpc/algorithms/fedbat.hpp"
#include "fedhpc/algorithms/fedbn.hpp"
#include "fedhpc/algorithms/fedcomloc.hpp"
#include "fedhpc/algorithms/feddecomp.hpp"
#include "fedhpc/algorithms/feddwa.hpp"
#include "fedhpc/algorithms/feddyn.hpp"
#include "fedhpc/algorithms/fedhm.hpp"
#include "fedhpc/algorithms/fedlmt.hpp"
#include "fedhpc/algorithms/fedmud.hpp"
#include "fedhpc/algorithms/fednova.hpp"
#include "fedhpc/algorithms/fedpara.hpp"
#include "fedhpc/algorithms/fedper.hpp"
#include "fedhpc/algorithms/fedprox.hpp"
#include "fedhpc/algorithms/fedprox_ft.hpp"
#include "fedhpc/algorithms/fedrep.hpp"
#include "fedhpc/algorithms/fedselect.hpp"
#include "fedhpc/algorithms/heurfedamp.hpp"
#include "fedhpc/algorithms/hierfavg.hpp"
#include "fedhpc/algorithms/lg_fedavg.hpp"
#include "fedhpc/algorithms/localonly.hpp"
#include "fedhpc/algorithms/lora.hpp"
#include "fedhpc/algorithms/moon.hpp"
#include "fedhpc/algorithms/perfedavg.hpp"
#include "fedhpc/algorithms/pfedgp.hpp"
#include "fedhpc/algorithms/pfedgraph.hpp"
#include "fedhpc/algorithms/pfedme.hpp"
#include "fedhpc/algorithms/pfedsop.hpp"
#include "fedhpc/algorithms/scaffold.hpp"
#include "fedhpc/algorithms/sfedhp.hpp"
#include "fedhpc/algorithms/simnet.hpp"
#include "fedhpc/algorithms/tdpfed.hpp"
#include "fedhpc/algorithms/weighting.hpp"

namespace fedhpc {

namespace {

template <typename Method>
std::unique_ptr<Algorithm> make() {
  return std::make_unique<Method>();
}

}  // namespace

Registry<std::unique_ptr<Algorithm>()>& algorithm_registry() {
  static Registry<std::unique_ptr<Algorithm>()> registry({
#define FEDHPC_ALGORITHM(name, Class, sentence) {#name, sentence, make<Class>},
#include "algorithms/algorithms.def"
#undef FEDHPC_ALGORITHM
  });
  return registry;
}

std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const std::string& place) {
  return algorithm_registry().find(name, "algorithm.name", place)();
}

void LinkOptions::declare(OptionSet& options, Payloads payloads, std::string help) {
  payloads_ = payloads;
  const bool both = payloads == Payloads::Changes || payloads == Payloads::Models;
  if (both) {
    options.add_choice("algorithm.downlink_codec", downlink.name, codec_registry().names(),
                       "what downloads become on the wire: changes of what the receiver has");
  }
  if (help.empty()) {
    help = both ? "what uploads become on the wire (fedhpc list codecs)"
                : "what uploads become on the wire (fedhpc list codecs); downloads are dense";
  }
  uplink.declare(
      options, "algorithm", std::move(help),
      payloads == Payloads::ModelsUp ? CodecChoice::Of::Models : CodecChoice::Of::Changes,
      both ? "algorithm.downlink_codec" : "");
  if (!both) return;
  const bool models = payloads == Payloads::Models;
  uplink.declare_feedback(options, "algorithm",
                          models ? CodecChoice::Of::Models : CodecChoice::Of::Changes);
  if (!models) return;
  options.add_check([this](const OptionSet& set) {
    if (uplink.compresses_changes() && uplink.feedback == ErrorFeedback::None) {
      set.refuse("algorithm.codec",
                 "algorithm.error_feedback = none: clients send whole models here, and changes of "
                 "them with ef21");
    }
  });
}

std::unique_ptr<Codec> LinkOptions::open(const Setup& setup, const Rows& model,
                                         std::int64_t channel, Ways ways) const {
  LinkMemory::Payload payload{.model = model, .models_up = payloads_ == Payloads::Models};
  if (ways != Ways::Down) payload.feedback = uplink.feedback;
  if (ways != Ways::Up && downlink.name != "dense") {
    CodecChoice choice = uplink;
    choice.name = downlink.name;
    choice.feedback = ErrorFeedback::Ef21;  // what both ends know of the model
    payload.downlink = choice.make();
  }
  setup.open_links(std::move(payload), channel);
  std::unique_ptr<Codec> up = uplink.make();
  up->set_channel(channel);
  return up;
}

void AveragingOptions::declare(OptionSet& options, LinkOptions::Payloads payloads,
                               std::string help) {
  declare_weighting(options, weighting);
  links.declare(options, payloads, std::move(help));
}

}  // namespace fedhpc
