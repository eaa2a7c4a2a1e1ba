#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/round.hpp"
#include "fedhpc/rounds/state_visitor.hpp"

namespace fedhpc {

/// What an algorithm starts from.
class Setup {
 public:
  Setup(Rows initial, const Topology& topology, ClientStore& store)
      : initial_(std::move(initial)), edges_(topology.edges()), store_(store) {}

  /// The initial global model [1, P]: drawn, or read from model.init_file.
  Rows initial_model() const { return initial_.clone(); }
  /// The same for every edge of this rank.
  EdgeRows initial_edges() const { return {initial_.replicate(edges_.size()), edges_.first}; }
  /// Where the method keeps rows and numbers of this rank's clients between rounds.
  ClientStore& store() const { return store_; }

 private:
  Rows initial_;
  Range edges_;
  ClientStore& store_;
};

/// Between whom a method's payloads travel.
enum class Tiers {
  ClientCloud,     ///< topology.edges only groups clients
  ClientEdgeCloud  ///< edges have models of their own; topology.edges is at least 1
};

/// Which models a method evaluates.
enum class Models {
  Global,   ///< one for all clients, which stands in for each one's own
  Personal  ///< one of each client's own; global_* do not apply, and there is no /model/global
};

/// C clients in hand during an evaluation.
class EvaluationBlock {
 public:
  virtual ~EvaluationBlock() = default;
  virtual std::span<const std::int64_t> clients() const = 0;  ///< ids, [C]
  /// The clients' own models [C, P].
  virtual void evaluate(const Rows& models) = 0;
};

/// Where an algorithm says which rows are its models. State never changes here.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  /// The global model [1, P]: scored on all test data, and on each client's own where the algorithm
  /// has no personal models.
  virtual void global(const Rows& model) = 0;
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
  virtual Tiers tiers() const { return Tiers::ClientCloud; }
  virtual Models models() const { return Models::Global; }
  /// Declares the `algorithm.*` keys the method has.
  virtual void declare(OptionSet& options) = 0;
  virtual void initialise(const Setup& setup) = 0;
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

/// All methods, in order of the registry table.
const std::vector<AlgorithmInfo>& algorithm_registry();

/// Throws ConfigError naming the nearest method for an unknown name; `place` says where it was
/// given.
std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const std::string& place);

/// Keys of the methods whose server averages what its clients upload.
struct AveragingOptions {
  Weighting weighting = Weighting::Samples;
  std::string codec = "dense";

  /// Declares algorithm.weighting and algorithm.codec, which holds for everything that goes up.
  void declare(OptionSet& options);
  std::unique_ptr<Codec> make_upload_codec() const { return make_codec(codec, "algorithm.codec"); }
};

}  // namespace fedhpc
