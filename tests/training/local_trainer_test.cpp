#include "fedhpc/training/local_trainer.hpp"

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
  LocalTrainer(*model, shard, options, seed).train_(trained, client, /*round=*/5, {.pass = 2});

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

}  // namespace
}  // namespace fedhpc
