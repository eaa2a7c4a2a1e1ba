#include <cmath>
#include <string>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"

#include "fixtures/in_turn.hpp"
#include "fixtures/tiny_run.hpp"

// Every algorithm of the registry with convolutions and batch norm: statistics travel, batches of
// one sample are skipped, and what a client sees does not depend on the others.
namespace fedhpc::testing {
namespace {

class EveryAlgorithmWithBatchNorm : public ::testing::TestWithParam<std::string> {
 protected:
  Keys keys(const Keys& changes = {}) const {
    Keys all = tiny_keys({{"algorithm.name", GetParam()},
                          {"run.rounds", "2"},
                          {"data.name", "hdf5"},
                          {"data.file", tiny_images()},
                          {"data.standardize", "half"},
                          {"model.name", "cnn2"},
                          {"model.width", "0.5"},
                          {"train.local_epochs", "1"}});
    for (const std::string other : {"data.features", "data.classes", "model.hidden"}) {
      all.erase(other);
    }
    if (has_edge_models(GetParam())) all["topology.edges"] = "3";
    if (has_key(GetParam(), "algorithm.rest")) all["algorithm.rest"] = "all";  // statistics, too
    for (const auto& [key, value] : changes) all[key] = value;
    return all;
  }

  static double bound(const std::string& dtype) { return dtype == "float64" ? 1e-9 : 1e-4; }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  std::unique_ptr<Communicator> alone_ = local_communicator();
};

TEST_P(EveryAlgorithmWithBatchNorm, SameOnAnyNumberOfRanks) {
  const std::string dtype = in_turn<std::string>({"float64", "float32"}, 0, *world_);
  const Keys these = keys({{"run.dtype", dtype}, {"topology.participation", "0.7"}});
  EXPECT_LT(distance(run(these, *world_).global, run(these, *alone_).global), bound(dtype));
}

TEST_P(EveryAlgorithmWithBatchNorm, SameInAnyBlockWidth) {
  std::size_t place = 0;
  for (const std::string dtype : {"float64", "float32"}) {
    const TinyResult narrow = run(keys({{"run.dtype", dtype}}), *world_);
    const std::string width = in_turn<std::string>({"3", "8"}, place++, *world_);
    const TinyResult wide = run(keys({{"run.dtype", dtype}, {"train.block", width}}), *world_);
    EXPECT_LT(distance(wide.global, narrow.global), bound(dtype)) << dtype << ", width " << width;
  }
}

TEST_P(EveryAlgorithmWithBatchNorm, SameBitsWhenReproducible) {
  std::size_t place = 0;
  for (const std::string dtype : {"float64", "float32"}) {
    Keys these = keys({{"run.dtype", dtype}, {"run.reproducible", "true"}});
    const TinyResult expected = run(these, *alone_);
    these["train.block"] = in_turn<std::string>({"1", "3", "8"}, place++, *world_);
    expect_same_bits(run(these, *world_), expected, *world_);
  }
}

TEST_P(EveryAlgorithmWithBatchNorm, StepsOfSizeZeroMoveOnlyBuffers) {
  Keys these = keys({{"train.lr", "0"}});
  if (has_key(GetParam(), "algorithm.zero_threshold")) these["algorithm.zero_threshold"] = "0";
  if (has_key(GetParam(), "algorithm.least_step")) {
    these["algorithm.least_step"] = "0";
    these["algorithm.most_step"] = "1e-300";  // without a warm-up they do not begin at 0
  }
  if (refuses(these)) return;                    // it divides by the length of its steps
  const bool truncates = GetParam() == "fedhm";  // where no step is made, too
  if (truncates) these["model.rank"] = "12";     // of conv2, 24 x 12
  // A mean of equal numbers is that number up to rounding.
  const bool rounds = truncates || GetParam() == "sfedhp";
  const TinyResult still = run(these, *world_);
  ModelOptions options;
  options.name = "cnn2";
  options.width = 0.5;
  const auto model = make_model(options, {1, 8, 8}, 4);
  for (const Field& field : model->layout()->fields()) {
    const auto part = [&](const Tensor& row) { return row.narrow(0, field.offset, field.size); };
    // Of a method with personal models, those of the first client.
    const bool same = rounds ? distance(part(still.global), part(still.initial)) < 1e-13
                             : part(still.global).equal(part(still.initial));
    EXPECT_EQ(same, !has(field.tags, Tag::Buffer)) << field.name;
  }
}

TEST_P(EveryAlgorithmWithBatchNorm, SkipsBatchesOfOneSample) {
  // Batches of 4 of 23, 5, 1, 0, 17, 9 and 30 samples: three clients end an epoch with one sample.
  for (const std::string batch : {"0", "4", "8"}) {
    const TinyResult result = run(keys({{"train.batch_size", batch}}), *world_);
    EXPECT_TRUE(result.global.isfinite().all().item<bool>());
    EXPECT_FALSE(result.global.equal(result.initial));
    if (world_->rank() == 0) {
      EXPECT_TRUE(std::isfinite(result.metrics.back().train_loss));
    }
  }
  Keys these = keys({{"train.batch_size", "1"}});
  if (GetParam() == "fedhm") these["model.rank"] = "12";  // else truncates what is sent back, too
  if (GetParam() == "simnet") these["algorithm.personal_start"] = "initial";  // else heads of 0
  const TinyResult none = run(these, *world_);
  EXPECT_LT(distance(none.global, none.initial), 1e-12) << "no client had a batch";
}

TEST_P(EveryAlgorithmWithBatchNorm, KeepsStatisticsWithTheClients) {
  Keys these = keys({{"topology.participation", "0.7"}, {"train.block", "3"}});
  Keys own = these;
  own["train.buffers"] = "local";
  if (refuses(own)) return;  // its messages hold all of a model
  const Config config(assignments_of(own), "tiny.ini");
  if (!config.options().acts(config.options().entry("train.buffers"))) return;  // none are averaged
  const TinyResult average = run(these, *world_);
  these = own;
  const TinyResult local = run(these, *world_);
  EXPECT_LT(distance(local.global, run(these, *alone_).global), 1e-9);
  EXPECT_LT(distance(local.personal, run(these, *alone_).personal), 1e-9);
  if (world_->rank() == 0) {
    EXPECT_LT(bytes_up(local.metrics.back()), bytes_up(average.metrics.back()));
    EXPECT_LT(bytes_down(local.metrics.back()), bytes_down(average.metrics.back()));
  }
  // Training normalises by its batches, so that weights are those of averaged statistics; but for a
  // method that looks at what training samples become in a whole model.
  ModelOptions options;
  options.name = "cnn2";
  options.width = 0.5;
  const auto model = make_model(options, {1, 8, 8}, 4);
  const bool has_global_model = has_global(models_evaluated_by(GetParam()));
  for (const Field& field : model->layout()->fields()) {
    const auto part = [&](const Tensor& models) {
      return models.reshape({-1, model->layout()->size()}).narrow(1, field.offset, field.size);
    };
    if (!has(field.tags, Tag::Buffer)) {
      if (GetParam() == "pfedgp" || GetParam() == "moon") continue;
      EXPECT_LT(distance(part(local.global), part(average.global)), 1e-12) << field.name;
      if (local.personal.numel() == 0) continue;
      EXPECT_LT(distance(part(local.personal), part(average.personal)), 1e-12) << field.name;
    } else if (has_global_model) {
      EXPECT_LT(distance(part(local.global), part(local.initial)), 1e-12) << field.name;
    } else {
      EXPECT_GT(distance(part(local.global), part(average.global)), 1e-3) << field.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithmWithBatchNorm,
                         ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
