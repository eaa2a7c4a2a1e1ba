#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/options.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {

/// What an algorithm starts from.
class Setup {
 public:
  Setup(Rows initial, const Topology& topology)
      : initial_(std::move(initial)), edges_(topology.edges()) {}

  /// The initial global model [1, P]: drawn, or read from model.init_file.
  Rows initial_model() const { return initial_.clone(); }
  /// The same for every edge of this rank.
  EdgeRows initial_edges() const { return {initial_.replicate(edges_.size()), edges_.first}; }

 private:
  Rows initial_;
  Range edges_;
};

/// Between whom a method's payloads travel.
enum class Tiers {
  ClientCloud,     ///< topology.edges only groups clients
  ClientEdgeCloud  ///< edges have models of their own; topology.edges is at least 1
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
};

/// A federated-learning method. Reads like the paper's algorithm box; touches no MPI, files or
/// devices.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual Tiers tiers() const { return Tiers::ClientCloud; }
  /// Declares the `algorithm.*` keys the method has.
  virtual void declare(OptionSet& options) = 0;
  virtual void initialise(const Setup& setup) = 0;
  virtual void round(Round& round) = 0;  ///< one global round
  virtual void evaluate(Evaluation& evaluation) = 0;
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

/// Declares algorithm.weighting with the method's own default.
void declare_weighting(OptionSet& options, Weighting& weighting);

}  // namespace fedhpc
