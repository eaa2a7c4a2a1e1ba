#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/data/shard.hpp"

#include "data/data_support.hpp"

// A shard that makes its samples when they are asked for gives what one that holds them gives, bit
// for bit.
namespace fedhpc {
namespace {

using namespace testing_support;

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kNothingHeld = 0;

/// A table that says its samples need not be held.
class MadeDataset : public TableDataset {
 public:
  explicit MadeDataset(at::ScalarType type) : TableDataset(Ids(50, 1), 40, 2, type) {}
  bool on_demand() const override { return true; }
};

Batch train_of(const Shard& shard, std::int64_t client) {
  const std::int64_t size = shard.train_count(client);
  Ids positions;
  for (std::int64_t i = size - 1; i >= 0; --i) positions.push_back(i);
  return gather(shard, client, positions);
}

Batch test_of(const Shard& shard, std::int64_t begin, std::int64_t end) {
  Batch batch{at::empty({end - begin, shard.features()}, scalar_type(shard.dtype())),
              at::empty({end - begin, shard.targets().count}, at::kLong)};
  shard.gather_test(begin, end, batch.features, batch.labels);
  return batch;
}

void expect_same(const Batch& made, const Batch& held) {
  EXPECT_TRUE(made.features.equal(held.features));
  EXPECT_TRUE(made.labels.equal(held.labels));
}

/// All test rows, in parts of a size that no client's number of samples divides.
void expect_same_test_rows(const Shard& made, const Shard& held) {
  ASSERT_EQ(made.test_rows(), held.test_rows());
  for (std::int64_t begin = 0; begin < held.test_rows(); begin += 7) {
    const std::int64_t end = std::min(begin + 7, held.test_rows());
    expect_same(test_of(made, begin, end), test_of(held, begin, end));
  }
}

void expect_same_clients(const Shard& made, const Shard& held) {
  ASSERT_EQ(made.clients(), held.clients());
  EXPECT_EQ(made.train_rows(), held.train_rows());
  const Shard all = made.in_hand(made.clients());
  EXPECT_FALSE(all.on_demand());
  EXPECT_EQ(all.test_rows(), 0);
  for (const std::int64_t client : held.clients()) {
    ASSERT_EQ(made.train_count(client), held.train_count(client));
    EXPECT_EQ(made.test_count(client), held.test_count(client));
    EXPECT_EQ(made.train_begin(client), held.train_begin(client));
    EXPECT_EQ(made.test_begin(client), held.test_begin(client));
    EXPECT_EQ(made.label_histogram(client), held.label_histogram(client));
    expect_same(train_of(all, client), train_of(held, client));
    expect_same(train_of(made.in_hand({client}), client), train_of(held, client));
  }
}

class Generators : public ::testing::TestWithParam<std::string> {};

TEST_P(Generators, GiveTheSameSamplesOnDemand) {
  for (const DataSplit split : {DataSplit::Client, DataSplit::Official}) {
    DataOptions options;
    options.name = GetParam();
    options.split = split;
    options.clients = 6;
    options.samples_per_client = 11;
    options.seed = 3;
    const auto data = open_dataset(options);
    const Partition partition = make_partition(options, *data);
    const auto shard = [&](DType dtype, std::int64_t bytes) {
      return Shard(*data, partition, {0, 2, 3, 5}, options.standardize, dtype, bytes);
    };
    const std::int64_t num_test = data->num_test();
    const auto server = [&](std::int64_t bytes) {
      return Shard::server(*data, num_test / 3, num_test, options.standardize, DType::Float32,
                           bytes);
    };
    for (const DType dtype : {DType::Float32, DType::Float64}) {
      const Shard made = shard(dtype, kNothingHeld);
      const Shard held = shard(dtype, Shard::kHeldBytes);
      ASSERT_TRUE(made.on_demand());
      ASSERT_FALSE(held.on_demand());
      EXPECT_LT(made.memory_bytes(), held.memory_bytes() / 10);
      expect_same_clients(made, held);
      expect_same_test_rows(made, held);
    }
    if (num_test == 0) continue;
    const Shard made = server(kNothingHeld);
    ASSERT_TRUE(made.on_demand());
    EXPECT_EQ(made.label_histogram(0), server(Shard::kHeldBytes).label_histogram(0));
    expect_same_test_rows(made, server(Shard::kHeldBytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Data, Generators,
                         ::testing::Values("synthetic", "glyphs", "covtype_like", "words"),
                         [](const auto& one) { return one.param; });

/// Five clients; the first and the last have no test sample, the second and the third none to train
/// on.
Partition ragged() {
  Partition partition;
  for (const Ids& list : {Ids{0, 3}, Ids{}, Ids{}, Ids{39, 5, 21}, Ids{8}}) {
    partition.train.append(list);
  }
  for (const Ids& list : {Ids{}, Ids{1}, Ids{40, 7}, Ids{9, 2}, Ids{}}) {
    partition.test.append(list);
  }
  return partition;
}

TEST(ShardOnDemandTest, ClientsWithoutSamplesTakeNoRows) {
  const Partition partition = ragged();
  for (const at::ScalarType type : {at::kByte, at::kDouble}) {
    const MadeDataset data(type);
    const auto shard = [&](std::int64_t bytes) {
      return Shard(data, partition, {0, 1, 2, 3, 4}, Standardize::Unit, DType::Float32, bytes);
    };
    expect_same_clients(shard(kNothingHeld), shard(Shard::kHeldBytes));
    expect_same_test_rows(shard(kNothingHeld), shard(Shard::kHeldBytes));
    EXPECT_EQ(shard(kNothingHeld).in_hand({1, 2}).train_rows(), 0);
  }
}

TEST(ShardOnDemandTest, OnlyWhatIsAskedForIsMade) {
  const Partition partition = ragged();
  const MadeDataset data(at::kByte);
  const Shard shard(data, partition, {0, 2, 3}, Standardize::Unit, DType::Float32, kNothingHeld);
  EXPECT_EQ(data.read_ids, Ids{});
  EXPECT_EQ(shard.memory_bytes(), 3 * 24) << "an id and two offsets per client";
  test_of(shard, 1, 3);
  EXPECT_EQ(data.read_ids, (Ids{7, 9}));
  data.read_ids.clear();
  EXPECT_EQ(shard.in_hand({0, 3}).clients(), (Ids{0, 3}));
  EXPECT_EQ(data.read_ids, (Ids{0, 3, 39, 5, 21}));
}

TEST(ShardOnDemandTest, HoldsWhatFitsAndWhatMustBeHeld) {
  const Partition partition = ragged();
  const auto made = [&](const Dataset& data, DType dtype, std::int64_t bytes) {
    return Shard(data, partition, {0, 1, 2, 3, 4}, Standardize::Unit, dtype, bytes).on_demand();
  };
  const MadeDataset pixels(at::kByte);  // 11 samples of 5 features
  EXPECT_FALSE(made(pixels, DType::Float64, 55));
  EXPECT_TRUE(made(pixels, DType::Float64, 54));
  const MadeDataset numbers(at::kDouble);
  EXPECT_FALSE(made(numbers, DType::Float32, 4 * 55));
  EXPECT_TRUE(made(numbers, DType::Float64, 4 * 55));
  EXPECT_FALSE(made(balanced(10, 10), DType::Float64, kNothingHeld)) << "no generator";
}

TEST(ShardOnDemandTest, RefusesWhatAHeldShardRefuses) {
  const Partition partition = ragged();
  const MadeDataset data(at::kDouble);
  expect_in("data.standardize = half", message_of<ConfigError>([&] {
              Shard(data, partition, {0}, Standardize::Half, DType::Float32, kNothingHeld);
            }));
  const Shard shard(data, partition, {0, 3}, Standardize::Unit, DType::Float32, kNothingHeld);
  EXPECT_THROW(shard.in_hand({1}), std::logic_error);
  EXPECT_THROW(shard.in_hand({3, 0}), std::logic_error);
  EXPECT_THROW(train_of(shard, 0), std::logic_error);
  EXPECT_THROW(test_of(shard, 0, 3), std::logic_error);
  const Shard held(data, partition, {0, 3}, Standardize::Unit, DType::Float32);
  EXPECT_THROW(held.in_hand({0}), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
