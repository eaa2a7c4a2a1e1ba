#include "fedhpc/data/preparation.hpp"

#include <cmath>
#include <numeric>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/data/shard.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// Two samples of `shape`, all pixels 0 in the first and their index in the second.
class Images : public Dataset {
 public:
  explicit Images(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {}
  std::vector<std::int64_t> shape() const override { return shape_; }
  std::int64_t classes() const override { return 2; }
  std::int64_t num_train() const override { return 1; }
  std::int64_t num_test() const override { return 1; }
  std::vector<std::int64_t> labels() const override { return {0, 1}; }
  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::empty({count, features()}, at::kByte), at::empty({count}, at::kLong)};
    for (std::int64_t i = 0; i < count; ++i) {
      samples.labels.data_ptr<std::int64_t>()[i] = ids[i];
      for (std::int64_t d = 0; d < features(); ++d) {
        samples.features.data_ptr<std::uint8_t>()[i * features() + d] =
            static_cast<std::uint8_t>(ids[i] == 0 ? 0 : d);
      }
    }
    return samples;
  }

 private:
  std::vector<std::int64_t> shape_;
};

Partition one_client(std::int64_t train, std::int64_t test) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(train + test));
  std::iota(ids.begin(), ids.end(), 0);
  Partition partition;
  partition.train.append(std::span(ids).first(static_cast<std::size_t>(train)));
  partition.test.append(std::span(ids).subspan(static_cast<std::size_t>(train)));
  return partition;
}

/// All training samples of client 0 as the model sees them, [S, D].
Tensor prepared(const Shard& shard) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(shard.train_count(0)));
  std::iota(positions.begin(), positions.end(), 0);
  const auto count = static_cast<std::int64_t>(positions.size());
  const Tensor features = at::empty({1, count, shard.features()}, scalar_type(shard.dtype()));
  shard.gather_train(0, positions, 0, features, at::empty({1, count}, at::kLong));
  return features[0].to(at::kDouble);
}

DataOptions options_for(const std::string& name, Standardize rule) {
  DataOptions options;
  options.name = name;
  options.standardize = rule;
  return options;
}

TEST(PreparationTest, PublishedConstantsApplyToTrainingAndTestSamplesAlike) {
  struct Case {
    std::string name;
    Standardize rule;
    std::vector<std::int64_t> shape;
    std::vector<double> mean;
    std::vector<double> deviation;
  };
  const std::vector<Case> cases = {
      {"fmnist", Standardize::Scalar, {1, 4, 4}, {.286}, {.353}},
      {"svhn", Standardize::Scalar, {3, 4, 4}, {.4496, .4496, .4496}, {.1995, .1995, .1995}},
      {"cifar10", Standardize::Channel, {3, 4, 4}, {.485, .456, .406}, {.229, .224, .225}},
      {"cifar100", Standardize::Channel, {3, 2, 4}, {.5071, .4865, .4409}, {.2673, .2564, .2762}}};
  for (const Case& one : cases) {
    const Images data(one.shape);
    const Preparation preparation = make_preparation(options_for(one.name, one.rule), data);
    const std::int64_t plane = one.shape[1] * one.shape[2];
    for (const DType dtype : {DType::Float32, DType::Float64}) {
      const Shard shard(data, one_client(1, 1), {0}, preparation, dtype);
      const double bound = dtype == DType::Float64 ? 1e-14 : 2e-7;
      const Tensor train = prepared(shard);
      const Tensor test = at::empty({1, shard.features()}, scalar_type(dtype));
      shard.gather_test(0, 1, test, at::empty({1}, at::kLong));
      for (std::int64_t d = 0; d < shard.features(); ++d) {
        const auto channel = static_cast<std::size_t>(d / plane);
        const double m = one.mean[channel];
        const double s = one.deviation[channel];
        EXPECT_NEAR(train[0][d].item<double>(), (0 - m) / s, bound) << one.name;
        EXPECT_NEAR(test[0][d].item<double>(), (static_cast<double>(d) / 255 - m) / s, bound);
      }
    }
  }
}

TEST(PreparationTest, OtherDataSetsHaveNoConstants) {
  const Images data({1, 4, 4});
  const std::string message = message_of<ConfigError>(
      [&] { make_preparation(options_for("mnist", Standardize::Scalar), data); });
  expect_in("data.standardize = scalar has no constants for data.name = mnist", message);
  expect_in("it has them for fmnist, svhn", message);
  expect_in("it has them for cifar10, cifar100", message_of<ConfigError>([&] {
              make_preparation(options_for("svhn", Standardize::Channel), data);
            }));
}

/// Each column has mean 0 and deviation s / (s + .001) over all samples, official test included.
void expect_pixel_rule(const Dataset& data, DType dtype) {
  const Preparation preparation = make_preparation(options_for("glyphs", Standardize::Pixel), data);
  const std::int64_t all = data.num_train() + data.num_test();
  const Shard shard(data, one_client(all, 0), {0}, preparation, dtype);
  const Tensor seen = prepared(shard);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(all));
  std::iota(ids.begin(), ids.end(), 0);
  const Tensor raw = data.read(ids).features.to(at::kDouble);
  for (std::int64_t d = 0; d < shard.features(); ++d) {
    double mean = 0;
    double square = 0;
    for (std::int64_t i = 0; i < all; ++i)
      mean += raw[i][d].item<double>() / static_cast<double>(all);
    for (std::int64_t i = 0; i < all; ++i) {
      square += std::pow(raw[i][d].item<double>() - mean, 2) / static_cast<double>(all);
    }
    for (std::int64_t i = 0; i < all; i += 7) {
      const double expected = (raw[i][d].item<double>() - mean) / (std::sqrt(square) + .001);
      EXPECT_NEAR(seen[i][d].item<double>(), expected, dtype == DType::Float64 ? 1e-12 : 1e-6);
    }
  }
}

TEST(PreparationTest, PixelUsesEveryColumnsOwnMeanAndDeviation) {
  const TableDataset pixels = balanced(5, 20);
  std::vector<std::int64_t> labels(60, 0);
  const TableDataset numbers(labels, 40, 1, at::kDouble);
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    expect_pixel_rule(pixels, dtype);
    expect_pixel_rule(numbers, dtype);
  }
}

TEST(PreparationTest, AColumnThatNeverChangesBecomesZero) {
  const Images data({4});
  const Preparation preparation = make_preparation(options_for("glyphs", Standardize::Pixel), data);
  const Shard shard(data, one_client(2, 0), {0}, preparation, DType::Float32);
  EXPECT_EQ(prepared(shard)[1][0].item<double>(), 0.0);  // column 0 is 0 in both samples
  EXPECT_NEAR(prepared(shard)[1][3].item<double>(), 1.5 / 1.501, 1e-6);
}

TEST(PreparationTest, PixelReadsLargeDataInParts) {
  std::vector<std::int64_t> labels(5000, 0);
  const TableDataset data(labels, 5000, 1);
  make_preparation(options_for("glyphs", Standardize::Pixel), data);
  EXPECT_EQ(data.read_ids.size(), 10000U) << "two passes";
}

TEST(PreparationTest, AShardRefusesMissingConstants) {
  const TableDataset data = balanced(5, 4);
  EXPECT_THROW(Shard(data, one_client(3, 1), {0}, Standardize::Pixel, DType::Float32),
               std::logic_error);
}

}  // namespace
}  // namespace fedhpc
