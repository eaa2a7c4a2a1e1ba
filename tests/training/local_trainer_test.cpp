#include "fedhpc/training/local_trainer.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/training/loss.hpp"

namespace fedhpc {
namespace {

TEST(LocalTrainerTest, AugmentsStepByStepWithTheKeyOfEachBatch) {
  DataOptions data;
  data.clients = 2;
  data.samples_per_client = 9;
  data.augment = Augment::CropFlip;
  const auto dataset = open_dataset(data);
  const Partition partition = make_partition(data, *dataset);
  const Shard shard(*dataset, partition, {0, 1}, make_preparation(data, *dataset), DType::Float64);
  ModelOptions mlr;
  mlr.name = "mlr";
  const auto model = make_model(mlr, dataset->shape(), dataset->classes());
  TrainOptions options;
  options.batch_size = 3;
  options.local_epochs = 0;
  options.local_steps = 4;  // beyond an epoch of three batches
  const std::uint64_t seed = 11;
  const std::vector<std::int64_t> client = {1};

  Rows trained{initial_row(*model->layout(), seed, at::kDouble), model->layout()};
  Rows expected = trained.clone();
  LocalTrainer(*model, shard, options, {.type = at::kDouble, .seed = seed})
      .train_(trained, client, /*round=*/5, {.pass = 2});

  BatchCursor cursor({.seed = seed,
                      .round = 5,
                      .client = 1,
                      .pass = 2,
                      .samples = shard.train_count(1),
                      .batch_size = 3});
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto positions = cursor.next();
    const auto size = static_cast<std::int64_t>(positions.size());
    const std::vector<Crop> crops = draw_crops({.seed = seed,
                                                .purpose = Purpose::Augment,
                                                .pass = 2,
                                                .epoch = step,
                                                .client = 1,
                                                .round = 5},
                                               size);
    const Activations stack = model->make_activations(1, size, at::kDouble, Use::Training);
    const Tensor labels = at::empty({1, size}, at::kLong);
    shard.gather_train(1, positions, 0, stack.input(), labels, crops);
    model->forward(expected.values, stack);
    double loss = 0;
    softmax_cross_entropy(stack.logits(), labels, stack.logit_gradient(), &loss);
    model->backward(expected.values, stack,
                    {.rows = expected.values, .scale = -options.lr, .keep = 1});
  }
  EXPECT_LT(trained.values.sub(expected.values).abs().max().item<double>(), 1e-13);
}

/// Clients of 12 samples each, and a model.
struct Clients {
  Clients(std::vector<std::int64_t> numbers, const std::string& name)
      : data{options(std::ssize(numbers))},
        dataset(open_dataset(data)),
        partition(make_partition(data, *dataset)),
        shard(*dataset, partition, std::move(numbers), make_preparation(data, *dataset),
              DType::Float64) {
    ModelOptions of_model;
    of_model.name = name;
    model = make_model(of_model, dataset->shape(), dataset->classes());
  }
  static DataOptions options(std::int64_t clients) {
    DataOptions data;
    data.clients = clients;
    data.samples_per_client = 12;
    return data;
  }

  DataOptions data;
  std::unique_ptr<Dataset> dataset;
  Partition partition;
  Shard shard;
  std::unique_ptr<Model> model;
};

TEST(LocalTrainerTest, MovesTheColumnsItIsToldTo) {
  const std::vector<std::int64_t> clients{0, 1};
  const Clients of(clients, "cnn2");
  const Shard& shard = of.shard;
  const auto& model = of.model;
  const Layout& layout = *model->layout();
  ASSERT_GT(layout.count(Tag::Buffer), 0);
  const Rows start{initial_row(layout, 3, at::kDouble).repeat({2, 1}), model->layout()};
  for (const OptimizerKind kind :
       {OptimizerKind::Sgd, OptimizerKind::Nesterov, OptimizerKind::Adam}) {
    for (const double decay : {0.0, 0.1}) {
      TrainOptions options{.batch_size = 4, .local_epochs = 1, .lr = 0.05, .optimizer = kind};
      options.momentum = kind == OptimizerKind::Nesterov ? 0.9 : 0;
      options.weight_decay = decay;
      LocalTrainer trainer(*model, shard, options, {.type = at::kDouble, .seed = 1});
      Rows all = start.clone();
      trainer.train_(all, clients, 1, {});
      for (const Columns& moving : {Columns{.with = Tag::Head}, Columns{.without = Tag::Head}}) {
        Rows rows = start.clone();
        trainer.train_(rows, clients, 1, {.columns = moving});
        for (const Field& field : layout.fields()) {
          const Tensor before = start.values.narrow(1, field.offset, field.size);
          const Tensor after = rows.values.narrow(1, field.offset, field.size);
          EXPECT_EQ(after.equal(before), !moving.hold(field.tags)) << field.name;
        }
      }
      Rows again = start.clone();
      trainer.train_(again, clients, 1, {});
      EXPECT_TRUE(again.values.equal(all.values));  // and afterwards all of them again
    }
  }
}

TEST(LocalTrainerTest, GoesOnWithTheOptimizerOfTheSameClientsInTheSameRound) {
  const Clients of({0, 1, 2, 3}, "mlr");
  const auto& model = of.model;
  TrainOptions options{.batch_size = 4, .lr = 0.05, .optimizer = OptimizerKind::Momentum};
  options.momentum = 0.9;
  LocalTrainer trainer(*model, of.shard, options, {.type = at::kDouble, .seed = 1});
  const std::vector<std::int64_t> these{0, 1};
  const std::vector<std::int64_t> others{2, 3};
  Rows rows{initial_row(*model->layout(), 3, at::kDouble).repeat({2, 1}), model->layout()};
  const auto train = [&](const std::vector<std::int64_t>& clients, std::int64_t round,
                         bool goes_on) {
    Rows trained = rows.clone();
    trainer.train_(trained, clients, round, {.pass = goes_on ? 1 : 0, .goes_on = goes_on});
    return trained;
  };
  EXPECT_THROW(train(these, 1, true), std::exception);  // nobody has trained
  train(these, 1, false);
  EXPECT_NO_THROW(train(these, 1, true));
  EXPECT_NO_THROW(train(these, 1, true));
  EXPECT_THROW(train(others, 1, true), Error);
  EXPECT_THROW(train(these, 2, true), Error);
  trainer.adapt_(rows.clone(), these, 1);
  EXPECT_THROW(train(these, 1, true), Error);
}

TEST(LocalTrainerTest, AdaptsOnBatchesThatNoTrainingSees) {
  DataOptions data;
  data.clients = 3;
  data.samples_per_client = 9;
  data.augment = Augment::CropFlip;
  const auto dataset = open_dataset(data);
  Partition partition = make_partition(data, *dataset);
  Partition ragged;  // client 1 has no training sample
  for (std::int64_t k = 0; k < 3; ++k) {
    const auto train = partition.train.of(k);
    ragged.train.append(k == 1 ? train.first(0) : train);
    ragged.test.append(partition.test.of(k));
  }
  const std::vector<std::int64_t> clients{0, 1, 2};
  const Shard shard(*dataset, ragged, clients, make_preparation(data, *dataset), DType::Float64);
  ModelOptions mlr;
  mlr.name = "mlr";
  const auto model = make_model(mlr, dataset->shape(), dataset->classes());
  TrainOptions options;
  options.batch_size = 4;
  options.local_epochs = 1;
  const std::uint64_t seed = 11;
  const Rows start{initial_row(*model->layout(), seed, at::kDouble), model->layout()};
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.1}, model->layout());
  LocalTrainer trainer(*model, shard, options, {.type = at::kDouble, .seed = seed});
  const Rows adapted = start.replicate(3);
  trainer.adapt_(adapted, clients, /*round=*/5, /*steps=*/1, sgd);

  for (const std::int64_t k : {0, 2}) {
    const std::int64_t n = shard.train_count(k);
    const std::vector<std::int64_t> positions =
        permutation_prefix({.seed = seed,
                            .purpose = Purpose::Evaluate,
                            .client = static_cast<std::uint64_t>(k),
                            .round = 5},
                           n, 4);
    const std::vector<Crop> crops = draw_crops({.seed = seed,
                                                .purpose = Purpose::Augment,
                                                .pass = std::uint64_t{1} << 31,
                                                .client = static_cast<std::uint64_t>(k),
                                                .round = 5},
                                               4);
    const Activations stack = model->make_activations(1, 4, at::kDouble, Use::Training);
    const Tensor labels = at::empty({1, 4}, at::kLong);
    shard.gather_train(k, positions, 0, stack.input(), labels, crops);
    const Rows expected = start.clone();
    model->forward(expected.values, stack);
    double loss = 0;
    softmax_cross_entropy(stack.logits(), labels, stack.logit_gradient(), &loss);
    model->backward(expected.values, stack, {.rows = expected.values, .scale = -0.1, .keep = 1});
    EXPECT_LT(adapted.values[k].sub(expected.values[0]).abs().max().item<double>(), 1e-13);
    EXPECT_GT(adapted.values[k].sub(start.values[0]).abs().max().item<double>(), 1e-6);
  }
  EXPECT_TRUE(adapted.values[1].equal(start.values[0]));

  const Rows alone = start.clone();
  trainer.adapt_(alone, std::span(clients).subspan(2), /*round=*/5, /*steps=*/1, sgd);
  EXPECT_LT(alone.values[0].sub(adapted.values[2]).abs().max().item<double>(), 1e-13);
}

}  // namespace
}  // namespace fedhpc
