#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/model.hpp"

namespace fedhpc::bench {

/// A model as device_training measures it: the samples it is trained on and the size of a batch.
struct TrainingCase {
  std::string name;                 ///< as in the tables
  std::vector<std::int64_t> shape;  ///< of a sample
  std::int64_t batch;
  std::int64_t batches;  ///< of a client's samples; further steps are further epochs
  std::int64_t steps;    ///< of a call, unless the command line says otherwise
};

/// dnn is 784-100-10 in batches of 20; cnn4, resnet9 and resnet18_gn (with group
/// norm of 2 groups) take 3 x 32 x 32 in batches of 64.
std::vector<TrainingCase> training_cases();

/// Random pixels and labels for `clients` clients with the same number of samples each, in whole
/// batches, and the model in its initial state.
class TrainingSetting {
 public:
  /// `batch`: 0 for the case's own.
  TrainingSetting(TrainingCase which, std::int64_t clients, std::int64_t batch, at::Device device);

  const TrainingCase& which() const { return which_; }
  std::int64_t clients() const { return partition_.clients(); }
  std::int64_t batch() const { return which_.batch; }
  std::int64_t samples() const { return which_.batch * which_.batches; }  ///< of a client
  at::Device device() const { return device_; }
  const Model& model() const { return *model_; }
  const Shard& shard() const { return *shard_; }
  /// A client's samples as the loop over clients has them: [samples, shape...] float32, in [0, 1].
  Tensor features_of(std::int64_t client) const;
  Tensor labels_of(std::int64_t client) const;  ///< [samples] int64
  /// Multiplications and additions of one local step of one client, the way back counted as two
  /// ways there.
  double flops_of_step() const;

 private:
  std::vector<std::int64_t> ids_of(std::int64_t client) const;

  TrainingCase which_;
  at::Device device_;
  std::unique_ptr<Dataset> dataset_;
  Partition partition_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Shard> shard_;
};

}  // namespace fedhpc::bench
