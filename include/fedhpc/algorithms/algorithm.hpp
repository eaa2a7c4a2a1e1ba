#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/round.hpp"
#include "fedhpc/rounds/round_metric.hpp"
#include "fedhpc/rounds/state_visitor.hpp"

namespace fedhpc {

/// What an algorithm starts from.
class Setup {
 public:
  struct Parts {
    const Context& context;
    Rows initial;  // [1, P]
    const TrainOptions& training;
    const Topology& topology;
    ClientStore& store;
    FactorMap* factor_map;  // null: weights in full
    Rows factors;           // [1, Q]
  };
  explicit Setup(Parts parts) : parts_(std::move(parts)) {}

  /// The initial global model [1, P]: drawn, or read from model.init_file.
  Rows initial_model() const { return parts_.initial.clone(); }
  /// The same for every edge of this rank.
  EdgeRows initial_edges() const {
    const Range edges = parts_.topology.edges();
    return {parts_.initial.replicate(edges.size()), edges.first};
  }
  /// What the factorised layers are a function of; of a method that names some.
  FactorMap& factor_map() const {
    require(parts_.factor_map != nullptr, "the method factorises its models");
    return *parts_.factor_map;
  }
  /// The initial factors [1, Q] of every model: drawn, or read from model.init_file.
  Rows initial_factors() const { return parts_.factors.clone(); }
  const TrainOptions& training() const { return parts_.training; }
  /// N, of all ranks.
  std::int64_t clients() const { return parts_.topology.placement().clients(); }
  std::uint64_t seed() const {
    return parts_.context.seed;
  }  ///< the first word of every draw's key
  /// Where the method keeps rows and numbers of this rank's clients between rounds.
  ClientStore& store() const { return parts_.store; }

 private:
  Parts parts_;
};

/// Between whom a method's payloads travel.
enum class Tiers {
  ClientCloud,     ///< topology.edges only groups clients
  ClientEdgeCloud  ///< edges have models of their own; topology.edges is at least 1
};

/// Which models a method evaluates.
enum class Models {
  Global,    ///< one for all clients, which stands in for each one's own
  Personal,  ///< one of each client's own; global_* do not apply, and there is no /model/global
  Both,      ///< a global one, and one of each client's own
  Shared     ///< one of each client's own, some columns of which all share: global_* do not apply,
             ///< and /model/global holds those columns
};

/// What a method is under its configuration, for those who run it.
struct Traits {
  Tiers tiers = Tiers::ClientCloud;
  Models models = Models::Global;
  FactorisationUse factorisations = {};  ///< that the method works with; none: weights in full
  FactorDraw factor_draw = {};           ///< how its first factors are drawn
  std::int64_t cohorts_in_round = 1;     ///< that a round draws, one after the other
  /// Whether a round may be left between two blocks and gone on with in another process: blocks act
  /// on rows and numbers of their own clients in the store, on means and notes of the round, and on
  /// nothing else; outside of blocks the round leaves the store alone.
  bool can_leave_rounds = true;
};

/// A classifier in the place of a model's head: logits [n, K] float64 of what the head would see of
/// n samples, [n, E] float64; all in host memory.
using Classifier = std::function<Tensor(const Tensor& embedding)>;

/// C clients in hand during an evaluation.
class EvaluationBlock {
 public:
  virtual ~EvaluationBlock() = default;
  virtual std::span<const std::int64_t> clients() const = 0;  ///< ids, [C]
  virtual std::int64_t round() const = 0;                     ///< after which they are evaluated
  /// Where each client gets, once received, from its row of `models` [C, P], or from the one of all
  /// [1, P], by `steps` steps of a fresh optimizer, each on a batch of its training samples: [C,
  /// P]. The batches are those of this round's evaluation, no training sees them. A client that
  /// cannot train stays where it is. Counts nowhere.
  virtual Rows adapt(const Rows& models, std::int64_t steps, RowOptimizer& optimizer) = 0;
  /// The same by a whole local training, as train.* say.
  virtual Rows adapt(const Rows& models) = 0;
  /// What models [C, P] are once the clients have received them: with statistics of the clients'
  /// own where those do not travel.
  virtual Rows as_received(const Rows& models) const = 0;
  /// The clients' own models [C, P].
  virtual void evaluate(const Rows& models) = 0;
  /// The same, with a classifier of each client's own in the place of the head: `fit` makes that of
  /// clients()[c] from what the head would see of its training samples.
  virtual void evaluate(
      const Rows& models,
      const std::function<Classifier(std::int64_t c, const Embedded& training)>& fit) = 0;
};

/// Where an algorithm says which rows are its models. State never changes here.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  /// The global model [1, P]: scored on all test data, and on each client's own where the algorithm
  /// has no personal models.
  virtual void global(const Rows& model) = 0;
  /// What all clients' models have in common [1, Q], where that is no whole model: scored nowhere,
  /// kept as /model/global.
  virtual void shared(const Rows& columns) = 0;
  /// The factors [1, Q] behind the global model: kept beside it in the result file.
  virtual void factors(const Rows&) {}
  /// The edges' models: each scored on the test samples of its clients.
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
  /// Declares the `algorithm.*` keys the method has.
  virtual void declare(OptionSet& options) = 0;
  /// Throws ConfigError for values of other keys that the method cannot honour.
  virtual void check(const OptionSet&) const {}
  virtual void initialise(const Setup& setup) = 0;
  /// What happens once, before round 1, between all clients: `everybody` is a round of number 0
  /// whose participants they all are, and whose traffic and training count nowhere. Not of a plan,
  /// nor of a run that goes on from a checkpoint. Collective.
  virtual void prepare(Round& /*everybody*/) {}
  /// Of an initialised method: the series of its own, which its rounds note().
  virtual std::vector<RoundMetric> metrics() const { return {}; }
  /// What the result file keeps of what has been drawn: of round 0 what prepare() has made, below
  /// /graph; of `round`, the last one done, what it has drawn for its clients, in the shapes of
  /// factors; of round 1 also where nothing has been done yet. By name; empty where nothing was.
  virtual std::vector<std::pair<std::string, Tensor>> drawn_in(std::int64_t /*round*/) const {
    return {};
  }
  virtual void round(Round& round) = 0;  ///< one global round
  virtual void evaluate(Evaluation& evaluation) = 0;
  /// All that a round leaves behind for later ones, by name, but for what lies with the clients:
  /// what a checkpoint holds.
  virtual void visit_state(StateVisitor& state) = 0;
};

struct AlgorithmInfo {
  std::string name;      ///< registry name
  std::string citation;  ///< one sentence
  std::unique_ptr<Algorithm> (*make)();
};

constexpr bool has_global(Models models) {
  return models == Models::Global || models == Models::Both;
}
constexpr bool has_personal(Models models) { return models != Models::Global; }

/// All methods, in order of the registry table.
const std::vector<AlgorithmInfo>& algorithm_registry();

/// Throws ConfigError naming the nearest method for an unknown name; `place` says where it was
/// given.
std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const std::string& place);

/// Keys of the methods whose server averages what its clients upload.
struct AveragingOptions {
  Weighting weighting = Weighting::Samples;
  CodecChoice codec = {};

  /// Declares algorithm.weighting, algorithm.codec and its algorithm.k; `codec_help` says what the
  /// codec holds for.
  void declare(OptionSet& options, const std::string& codec_help =
                                       "what uploads become on the wire (fedhpc list codecs); "
                                       "downloads are dense");
  std::unique_ptr<Codec> make_upload_codec() const { return codec.make(); }
};

}  // namespace fedhpc
