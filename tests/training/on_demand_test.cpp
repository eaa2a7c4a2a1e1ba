#include <gtest/gtest.h>

#include "fedhpc/training/local_trainer.hpp"

// Training on samples that are made on demand gives what training on held samples gives, bit for
// bit.
namespace fedhpc {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kNothingHeld = 0;

class OnDemandTest : public ::testing::Test {
 protected:
  OnDemandTest() {
    data_.name = "synthetic";
    data_.clients = 5;
    data_.samples_per_client = 14;
    data_.features = 7;
    data_.classes = 3;
    data_.partition = "iid";  // a client's samples come from many generators
    dataset_ = open_dataset(data_);
    partition_ = make_partition(data_, *dataset_);
    ModelOptions model;
    model.name = "dnn";
    model.hidden = {6};
    model_ = make_model(model, dataset_->shape(), dataset_->classes());
    train_.batch_size = 4;
    train_.local_steps = 0;
    train_.local_epochs = 2;
    train_.lr = 0.1;
  }

  Shard shard(std::int64_t held_bytes) const {
    return {*dataset_, partition_, {0, 1, 2, 3, 4}, data_.standardize, DType::Float64, held_bytes};
  }

  /// The rows of blocks trained one after the other: clients in any order, the same block twice,
  /// a client twice in one block.
  std::vector<Tensor> trained(const Shard& shard) const {
    LocalTrainer trainer(*model_, shard, train_, {.type = at::kDouble, .seed = 9});
    const Rows initial{initial_row(*model_->layout(), 2, at::kDouble), model_->layout()};
    std::vector<Tensor> all;
    for (const Ids& clients : {Ids{3, 0}, Ids{3, 0}, Ids{4, 1, 4}, Ids{2}}) {
      Rows rows = initial.replicate(static_cast<std::int64_t>(clients.size()));
      trainer.train_(rows, clients, /*round=*/std::ssize(all) + 1, LocalWork{});
      all.push_back(rows.values);
    }
    Rows rows = initial.replicate(3);
    RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.1}, model_->layout());
    trainer.adapt_(rows, Ids{1, 3, 4}, /*round=*/2, /*steps=*/3, sgd);
    all.push_back(rows.values);
    return all;
  }

  DataOptions data_;
  TrainOptions train_;
  std::unique_ptr<Dataset> dataset_;
  Partition partition_;
  std::unique_ptr<Model> model_;
};

TEST_F(OnDemandTest, TrainsAsOnHeldSamples) {
  const Shard made = shard(kNothingHeld);
  ASSERT_TRUE(made.on_demand());
  const std::vector<Tensor> on_demand = trained(made);
  const std::vector<Tensor> held = trained(shard(Shard::kHeldBytes));
  ASSERT_EQ(on_demand.size(), held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(on_demand[i].equal(held[i])) << "block " << i;
  }
  EXPECT_FALSE(held[0].equal(held[1])) << "another round has other batches";
}

}  // namespace
}  // namespace fedhpc
