#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc::bench {

/// One comparison: a fully connected model on the 28x28 `glyphs` images, batches of 20, plain SGD,
/// float32, 20 clients of 200 training samples each.
struct StepCase {
  std::string name;
  std::vector<std::int64_t> hidden;
  std::int64_t block = 1;  ///< clients trained together
};

/// The cases of the tables in RESULTS.md.
std::vector<StepCase> step_cases();

constexpr std::int64_t kClients = 20;
constexpr std::int64_t kBatch = 20;
constexpr std::int64_t kSteps = 10;                         // one epoch
constexpr std::int64_t kStepsPerPhase = kClients * kSteps;  // client-steps of one call below

/// What all variants work on: the data of all clients and the initial model.
struct StepSetting {
  explicit StepSetting(StepCase chosen);

  StepCase which;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<Model> model;
  Rows initial;  // [1, P]
};

/// The project's own path: LocalTrainer on blocks of clients; batches drawn, gathered, trained on.
class ProjectSteps {
 public:
  explicit ProjectSteps(const StepSetting& setting);
  /// Every client takes one epoch from where it stands; block after block.
  double operator()();

 private:
  const StepSetting& setting_;
  TrainOptions options_;
  LocalTrainer trainer_;
  std::vector<std::int64_t> clients_;
  std::vector<Rows> blocks_;  // each [block, P]
  std::int64_t round_ = 0;
};

/// What computes the products of ProductsAlone: BLAS as LibTorch carries it, or batched_product.
enum class Kernels { Blas, Project };

/// The matrix products of ProjectSteps and nothing else: the same shapes on rows of the same
/// stride, in the same order over clients and steps, with the update in place.
class ProductsAlone {
 public:
  explicit ProductsAlone(const StepSetting& setting, Kernels kernels = Kernels::Blas);
  double operator()();

 private:
  void step(float* row, std::int64_t c);

  Kernels kernels_;
  std::int64_t block_;
  std::vector<std::int64_t> widths_;  // D, hidden widths, K
  std::vector<Tensor> weights_;       // each [block, P]
  std::vector<Tensor> values_;        // each [block, B, width]
  std::vector<Tensor> gradients_;     // each [block, B, width]; undefined for the input
};

/// What a user of LibTorch writes: one torch::nn::Sequential and one torch::optim::SGD per client,
/// one client after the other, batches by index_select from the standardised data.
class AutogradLoop {
 public:
  explicit AutogradLoop(const StepSetting& setting);
  ~AutogradLoop();
  double operator()();

 private:
  struct Client;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace fedhpc::bench
