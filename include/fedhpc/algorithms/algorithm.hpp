#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/metric.hpp"
#include "fedhpc/core/named_tensor.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/core/registry.hpp"
#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/link_memory.hpp"
#include "fedhpc/rounds/round.hpp"
#include "fedhpc/rounds/state_visitor.hpp"

namespace fedhpc {

/// A method starts from these: the initial models, the options, and the clients' store.
class Setup {
 public:
  struct Parts {
    const Context& context;
    Rows initial;  // [1, P]
    const TrainOptions& training;
    const Topology& topology;
    ClientStore& store;
    LinkMemory& links;
    bool edge_models = false;
    FactorMap* factor_map;  // null: weights in full
    Rows factors;           // [1, Q]
    std::vector<Metric>& metrics;
  };
  explicit Setup(Parts parts) : parts_(std::move(parts)) {}

  /// The initial global model [1, P]: drawn, or read from model.init_file.
  Rows initial_model() const { return parts_.initial.clone(); }
  /// The initial model for every edge of this rank.
  EdgeRows initial_edges() const {
    const Range edges = parts_.topology.edges();
    return {parts_.initial.replicate(edges.size()), edges.first};
  }
  /// The map from factors to weights, for a method that names factorisations.
  FactorMap& factor_map() const {
    require(parts_.factor_map != nullptr, "the method factorises its models");
    return *parts_.factor_map;
  }
  /// The initial factors [1, Q] of every model: drawn, or read from model.init_file.
  Rows initial_factors() const { return parts_.factors.clone(); }
  const TrainOptions& training() const { return parts_.training; }
  /// N, the clients of all ranks.
  std::int64_t clients() const { return parts_.topology.placement().clients(); }
  std::uint64_t seed() const {
    return parts_.context.seed;
  }  ///< the first word of every draw's key
  /// The method keeps rows and numbers of this rank's clients here between rounds.
  ClientStore& store() const { return parts_.store; }
  /// Opens the links of a payload of the method's rounds.
  void open_links(LinkMemory::Payload payload, std::int64_t channel) const {
    const Range edges = parts_.edge_models ? parts_.topology.edges() : Range{};
    parts_.links.open(std::move(payload), edges, channel);
  }
  /// More series of the method's own, which its rounds note().
  void add_metrics(const std::vector<Metric>& metrics) const {
    parts_.metrics.insert(parts_.metrics.end(), metrics.begin(), metrics.end());
  }

 private:
  Parts parts_;
};

/// The ends between which a method's payloads travel.
enum class Tiers {
  ClientCloud,     ///< edges group clients at most, as a partition file says
  ClientEdgeCloud  ///< edges have models of their own; topology.edges is at least 1
};

/// The models a method evaluates.
enum class Models {
  Global,    ///< one for all clients, which stands in for each one's own
  Personal,  ///< one per client; global_* do not apply, and there is no /model/global
  Both,      ///< a global one, and one per client
  Shared     ///< one per client, with columns that all share: global_* do not apply, and
             ///< /model/global holds those columns
};

/// Tells those who run a method what it is under its configuration. Those of every method there is
/// are asked in each run, with its defaults, for messages.
struct Traits {
  Tiers tiers = Tiers::ClientCloud;
  Models models = Models::Global;
  FactorisationUse factorisations = {};  ///< the method works with these; none: weights in full
  FactorDraw factor_draw = {};           ///< the way its first factors are drawn
  bool reads_embeddings = false;         ///< it works on what the head sees
  std::int64_t cohorts_in_round = 1;     ///< a round draws so many, one after the other
  /// true: a round may be left between two blocks, and another process goes on with it. Blocks then
  /// act on rows and numbers of their own clients in the store, on means and notes of the round,
  /// and on nothing else. Outside of blocks the round leaves the store alone. For the same reason
  /// its participants may be trained on any rank (topology.placement).
  bool can_leave_rounds = true;
  bool reads_labels = false;  ///< it computes with one class label of each sample
  /// Local steps that a client takes in a round on average, where the method draws their number; 0:
  /// as train.* say.
  double mean_steps = 0;
  std::int64_t trainings_in_round = 1;  ///< trainings of a round that train.lr_unit = epoch counts
  bool divides_by_rate = false;         ///< it divides by train.lr as the schedule has it
  /// The payloads of changes that a participant sends in a round. Of the clients' data the server
  /// then knows the means of these over the participants alone. 0: it knows more, or what clients
  /// keep has to add up to what it has received, which privacy.* change.
  std::int64_t averaged_uploads = 0;
  bool sends_buffers = true;  ///< batch norm's statistics travel, but with train.buffers = local

  /// averaged_uploads where privacy.* can account for it: of one cohort, without edges' own models.
  std::int64_t private_uploads() const {
    return tiers == Tiers::ClientCloud && cohorts_in_round == 1 ? averaged_uploads : 0;
  }
};

/// A classifier that replaces a model's head: it maps what the head would see of n samples, [n, E]
/// float64, to logits [n, K] float64. All are in host memory.
using Classifier = std::function<Tensor(const Tensor& embedding)>;

/// C clients that are evaluated together.
class EvaluationBlock {
 public:
  virtual ~EvaluationBlock() = default;
  virtual std::span<const std::int64_t> clients() const = 0;  ///< ids, [C]
  virtual std::int64_t round() const = 0;                     ///< they are evaluated after it
  /// Hands each client its row of `models` [C, P], or the one of all [1, P], and returns the
  /// adapted models [C, P]. Each client takes `steps` steps of the optimizer, each on a batch of
  /// its training samples. The optimizer starts afresh in the columns of its last reset. The
  /// batches are those of this round's evaluation; no training sees them. A client that cannot
  /// train stays where it is. Counts nowhere.
  virtual Rows adapt(const Rows& models, std::int64_t steps, RowOptimizer& optimizer) = 0;
  /// Adapts these columns by a whole local training, as train.* say; the others stay.
  virtual Rows adapt(const Rows& models, const Columns& columns) = 0;
  Rows adapt(const Rows& models) { return adapt(models, Columns{}); }
  /// Returns models [C, P] as the clients receive them: with the clients' own statistics where
  /// those do not travel.
  virtual Rows as_received(const Rows& models) const = 0;
  /// Scores the clients' own models [C, P].
  virtual void evaluate(const Rows& models) = 0;
  /// Scores them with a classifier of each client's own in place of the head. `fit` makes that of
  /// clients()[c] from what the head would see of its training samples.
  virtual void evaluate(
      const Rows& models,
      const std::function<Classifier(std::int64_t c, const Embedded& training)>& fit) = 0;
};

/// A method hands over its models here, to be scored and kept. State never changes here.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  /// Takes the global model [1, P]. It is scored on all test data, and on each client's own where
  /// the method has no personal models.
  virtual void global(const Rows& model) = 0;
  /// Takes what all clients' models share [1, Q] where that is no whole model. It is scored
  /// nowhere, and kept as /model/global.
  virtual void shared(const Rows& columns) = 0;
  /// Takes the factors [1, Q] behind the global model, kept beside it in the result file.
  virtual void factors(const Rows&) {}
  /// Takes the edges' models; each is scored on the test samples of its clients.
  virtual void edges(const EdgeRows& models) = 0;
  /// Goes through all clients of this rank, participants or not, in blocks.
  virtual void each_block(const std::function<void(EvaluationBlock&)>& work) = 0;
};

/// A federated-learning method. Reads like the paper's algorithm box; touches no MPI, files or
/// devices.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual Traits traits() const { return {}; }
  /// Checksums of the method's code where that is no part of a library, and of its constants, 16
  /// digits each; else empty.
  virtual std::string code_digest() const { return {}; }
  /// Declares the keys below `algorithm` that the method has, and adds checks that refuse values of
  /// other keys that it cannot honour.
  virtual void declare(OptionSet& options) = 0;
  virtual void initialise(const Setup& setup) = 0;
  /// Runs once before round 1, between all clients: `everybody` is round 0 with all of them as
  /// participants. Its traffic and training count nowhere. A run that goes on from a checkpoint
  /// skips it. Collective.
  virtual void prepare(Round& /*everybody*/) {}
  /// What the result file keeps of draws, by name. Round 0: what prepare() has made, below /graph.
  /// The last round done: what it drew for its clients, in the shapes of factors. Round 1: also
  /// before anything is done. Empty where nothing was drawn.
  virtual std::vector<NamedTensor> drawn_in(std::int64_t /*round*/) const { return {}; }
  virtual void round(Round& round) = 0;  ///< one global round
  virtual void evaluate(Evaluation& evaluation) = 0;
  /// Visits, by name, all that a round leaves for later ones but for what lies with the clients. A
  /// checkpoint holds it.
  virtual void visit_state(StateVisitor& state) = 0;
};

constexpr bool has_global(Models models) {
  return models == Models::Global || models == Models::Both;
}
constexpr bool has_personal(Models models) { return models != Models::Global; }

/// Every method: algorithm.name.
Registry<std::unique_ptr<Algorithm>()>& algorithm_registry();

/// Throws ConfigError naming the nearest method for an unknown name; `place` says where it was
/// given.
std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const std::string& place);

/// What a method's payloads become on the wire, and its keys.
struct LinkOptions {
  /// What travels, and so what may become of it.
  enum class Payloads {
    Changes,    ///< changes of a model up, that model down
    Models,     ///< whole models in both directions
    ChangesUp,  ///< changes up, which mean something else every round; the rest is the method's
    ModelsUp    ///< models of that kind
  };
  /// The directions that one payload of a round has.
  enum class Ways { Both, Up, Down };

  CodecChoice uplink = {};
  CodecChoice downlink = {};

  /// Declares algorithm.codec and the keys of single codecs; of Changes and Models also
  /// algorithm.downlink_codec and algorithm.error_feedback. `help` says what the codec holds for.
  void declare(OptionSet& options, Payloads payloads, std::string help = {});

  /// Returns the codec of uploads, of ChangesUp and ModelsUp.
  std::unique_ptr<Codec> upload_codec() const { return uplink.make(); }
  /// The same of Changes and Models, whose rows it makes on every rank. `model` [1, P] is what
  /// clients know at the start; `channel`: the number of this payload, where a round has several.
  std::unique_ptr<Codec> open(const Setup& setup, const Rows& model, std::int64_t channel = 0,
                              Ways ways = Ways::Both) const;

 private:
  Payloads payloads_ = Payloads::Changes;
};

/// The keys of methods whose server averages what its clients upload.
struct AveragingOptions {
  Weighting weighting = Weighting::Samples;
  LinkOptions links = {};

  /// Declares algorithm.weighting and the keys of links.
  void declare(OptionSet& options, LinkOptions::Payloads payloads = LinkOptions::Payloads::Changes,
               std::string help = {});
};

}  // namespace fedhpc
