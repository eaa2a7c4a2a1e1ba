#include "fedhpc/data/shard.hpp"

#include <algorithm>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

using Ids = std::vector<std::int64_t>;

/// Four clients; client 1 has no training and client 2 no test sample.
Partition sample() {
  Partition partition;
  for (const Ids& list : {Ids{0, 3}, Ids{}, Ids{39, 5, 21}, Ids{8}}) partition.train.append(list);
  for (const Ids& list : {Ids{1}, Ids{40, 7}, Ids{}, Ids{9, 2}}) partition.test.append(list);
  return partition;
}

double reference(double pixel, Standardize standardize) {
  if (standardize == Standardize::None) return pixel;
  if (standardize == Standardize::Unit) return pixel / 255;
  return (pixel / 255 - .5) / .5;
}

template <typename T>
void expect_rows(const Tensor& out, const Ids& ids, Standardize standardize) {
  ASSERT_EQ(out.size(0), static_cast<std::int64_t>(ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::int64_t d = 0; d < 5; ++d) {
      const T expected = static_cast<T>(reference(TableDataset::value(ids[i], d), standardize));
      EXPECT_EQ(out.data_ptr<T>()[5 * i + d], expected) << "row " << i << " feature " << d;
    }
  }
}

Ids values(const Tensor& labels) {
  const auto* begin = labels.const_data_ptr<std::int64_t>();
  return {begin, begin + labels.numel()};
}

/// Features and labels of stacked test rows.
Batch gather_rows(const Shard& shard, std::int64_t begin, std::int64_t end) {
  Batch batch{at::empty({end - begin, shard.features()}, scalar_type(shard.dtype())),
              at::empty({end - begin}, at::kLong)};
  shard.gather_test(begin, end, batch.features, batch.labels);
  return batch;
}

TEST(ShardTest, GathersStandardisedRowsInTheOrderAsked) {
  const TableDataset data = balanced(10, 10);
  const Partition partition = sample();
  const Ids positions = {2, 0, 2};
  for (const Standardize rule : {Standardize::None, Standardize::Unit, Standardize::Half}) {
    const Shard single(data, partition, {0, 1, 2, 3}, rule, DType::Float32);
    const Batch floats = gather(single, 2, positions);
    expect_rows<float>(floats.features[0], {21, 39, 21}, rule);
    EXPECT_EQ(values(floats.labels[0]), (Ids{1, 9, 1}));
    const Shard wide(data, partition, {0, 1, 2, 3}, rule, DType::Float64);
    expect_rows<double>(gather(wide, 2, positions).features[0], {21, 39, 21}, rule);
    const Batch test = gather_rows(single, 1, 4);
    expect_rows<float>(test.features, {40, 7, 9}, rule);
    EXPECT_EQ(values(test.labels), (Ids{0, 7, 9}));
  }
}

TEST(ShardTest, ABatchFillsTheStartOfItsRowAndNothingElse) {
  const TableDataset data = balanced(10, 10);
  const Shard shard(data, sample(), {0, 1, 2, 3}, Standardize::None, DType::Float32);
  const Tensor features = at::full({3, 4, 5}, -1.0, at::kFloat);
  const Tensor labels = at::full({3, 4}, -1, at::kLong);
  shard.gather_train(0, Ids{1, 0}, 1, features, labels);
  expect_rows<float>(features[1].narrow(0, 0, 2), {3, 0}, Standardize::None);
  EXPECT_EQ(values(labels), (Ids{-1, -1, -1, -1, 3, 0, -1, -1, -1, -1, -1, -1}));
  const auto* numbers = features.const_data_ptr<float>();
  EXPECT_EQ(std::count(numbers, numbers + features.numel(), -1.0F), 60 - 10);
}

TEST(ShardTest, HoldsItsOwnClientsOnly) {
  const TableDataset data = balanced(10, 10);
  const Shard shard(data, sample(), {1, 2}, Standardize::Unit, DType::Float32);
  EXPECT_EQ(std::set<std::int64_t>(data.read_ids.begin(), data.read_ids.end()),
            (std::set<std::int64_t>{5, 7, 21, 39, 40}));
  EXPECT_EQ(shard.clients(), (Ids{1, 2}));
  EXPECT_TRUE(shard.holds(2));
  EXPECT_FALSE(shard.holds(3));
  EXPECT_EQ(shard.train_rows(), 3);
  EXPECT_EQ(shard.test_rows(), 2);
  EXPECT_EQ(shard.memory_bytes(), 5 * (5 + 8) + 2 * 24)
      << "a byte per pixel, eight per label, an id and two offsets per client";
  EXPECT_EQ(shard.train_count(1), 0);
  EXPECT_EQ(shard.test_count(1), 2);
  EXPECT_EQ(shard.train_begin(2), 0);
  EXPECT_EQ(shard.test_begin(2), 2);
  EXPECT_EQ(shard.test_count(2), 0);
  EXPECT_THROW(shard.train_count(0), std::logic_error);
  EXPECT_THROW(shard.train_count(3), std::logic_error);
}

TEST(ShardTest, ItsClientsNeedNotBeNeighbours) {
  const TableDataset data = balanced(10, 10);
  const Shard shard(data, sample(), {0, 2}, Standardize::Half, DType::Float64);
  EXPECT_EQ(shard.train_count(2), 3);
  EXPECT_EQ(shard.train_begin(2), 2);
  expect_rows<double>(gather(shard, 2, {2, 0}).features[0], {21, 39}, Standardize::Half);
  EXPECT_THROW(shard.train_count(1), std::logic_error);
  EXPECT_THROW(Shard(data, sample(), {2, 0}, Standardize::Half, DType::Float64), std::logic_error);
}

TEST(ShardTest, LabelsStandInTheOrderOfTheStacks) {
  const TableDataset data = balanced(10, 10);
  const Shard shard(data, sample(), {0, 1, 2, 3}, Standardize::Unit, DType::Float32);
  EXPECT_EQ(values(gather(shard, 0, {0, 1}).labels), (Ids{0, 3}));
  EXPECT_EQ(values(gather(shard, 2, {0, 1, 2}).labels), (Ids{9, 5, 1}));
  EXPECT_EQ(values(gather(shard, 3, {0}).labels), Ids{8});
  EXPECT_EQ(values(gather_rows(shard, 0, 5).labels), (Ids{1, 0, 7, 9, 2}));
  EXPECT_EQ(shard.label_histogram(1), (Ids{1, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(shard.label_histogram(3), (Ids{0, 0, 1, 0, 0, 0, 0, 0, 1, 1}));
}

TEST(ShardTest, FloatDataAreKeptInTheNumberType) {
  const TableDataset data(Ids(20, 1), 20, 2, at::kDouble);
  Partition partition;
  partition.train.append(Ids{2, 19});
  partition.test.append(Ids{3});
  for (const Standardize rule : {Standardize::None, Standardize::Unit}) {
    const Shard shard(data, partition, {0}, rule, DType::Float32);
    const Batch batch = gather(shard, 0, {1});
    for (std::int64_t d = 0; d < 5; ++d) {
      EXPECT_EQ(batch.features.data_ptr<float>()[d],
                static_cast<float>(TableDataset::value(19, d) / 3));
    }
    EXPECT_EQ(shard.memory_bytes(), 3 * (5 * 4 + 8) + 24);
  }
  expect_in("data.standardize = half", message_of<ConfigError>([&] {
              Shard(data, partition, {0}, Standardize::Half, DType::Float32);
            }));
}

TEST(ShardTest, TheServersShardIsTheOfficialTestSet) {
  const TableDataset data = balanced(2, 10);  // 16 training, 4 test
  const Shard part = Shard::server(data, 1, 3, Standardize::None, DType::Float32);
  EXPECT_EQ(part.test_rows(), 2);
  expect_rows<float>(gather_rows(part, 0, 2).features, {17, 18}, Standardize::None);
  EXPECT_THROW(Shard::server(data, 1, 5, Standardize::None, DType::Float32), std::logic_error);

  const Shard server = Shard::server(data, 0, 4, Standardize::Half, DType::Float64);
  EXPECT_EQ(server.clients(), Ids{0});
  EXPECT_EQ(server.train_count(0), 0);
  EXPECT_EQ(server.test_count(0), 4);
  EXPECT_EQ(server.train_rows(), 0);
  ASSERT_EQ(server.test_rows(), 4);
  const Batch all = gather_rows(server, 0, 4);
  expect_rows<double>(all.features, {16, 17, 18, 19}, Standardize::Half);
  EXPECT_EQ(values(all.labels), (Ids{0, 1, 0, 1}));
}

TEST(ShardTest, ARankMayHaveNoClient) {
  const TableDataset data = balanced(10, 10);
  const Shard shard(data, sample(), {}, Standardize::Unit, DType::Float32);
  EXPECT_TRUE(shard.clients().empty());
  EXPECT_EQ(shard.memory_bytes(), 0);
}

TEST(ShardTest, WrongPlacesAndOutputsAreOurOwnBugs) {
  const TableDataset data = balanced(10, 10);
  const Shard shard(data, sample(), {0, 1, 2, 3}, Standardize::Unit, DType::Float32);
  const Tensor features = at::empty({1, 1, 5}, at::kFloat);
  const Tensor labels = at::empty({1, 1}, at::kLong);
  EXPECT_NO_THROW(shard.gather_train(0, Ids{1}, 0, features, labels));
  EXPECT_THROW(shard.gather_train(0, Ids{2}, 0, features, labels), std::logic_error);
  EXPECT_THROW(shard.gather_train(0, Ids{-1}, 0, features, labels), std::logic_error);
  EXPECT_THROW(shard.gather_train(0, Ids{0, 1}, 0, features, labels), std::logic_error);
  EXPECT_THROW(shard.gather_train(0, Ids{1}, 1, features, labels), std::logic_error);
  const auto refuses = [&](const Tensor& other_features, const Tensor& other_labels) {
    EXPECT_THROW(shard.gather_train(0, Ids{0, 1}, 0, other_features, other_labels),
                 std::logic_error);
  };
  const Tensor pair = at::empty({1, 2, 5}, at::kFloat);
  refuses(pair, labels);
  refuses(at::empty({1, 2, 5}, at::kDouble), at::empty({1, 2}, at::kLong));
  refuses(at::empty({1, 5, 2}, at::kFloat).transpose(1, 2), at::empty({1, 2}, at::kLong));
  refuses(pair, at::empty({1, 4}, at::kLong).as_strided({1, 2}, {4, 2}));
  refuses(at::empty({1, 2, 6}, at::kFloat), at::empty({1, 2}, at::kLong));

  const Tensor row = at::empty({1, 5}, at::kFloat);
  const Tensor label = at::empty({1}, at::kLong);
  EXPECT_NO_THROW(shard.gather_test(4, 5, row, label));
  EXPECT_THROW(shard.gather_test(5, 6, row, label), std::logic_error);
  EXPECT_THROW(shard.gather_test(3, 5, row, label), std::logic_error);
  EXPECT_THROW(shard.gather_test(3, 5, at::empty({2, 5}, at::kFloat), label), std::logic_error);
  EXPECT_THROW(shard.gather_test(4, 5, at::empty({1, 5}, at::kDouble), label), std::logic_error);
  EXPECT_THROW(Shard(data, sample(), {2, 3, 4}, Standardize::Unit, DType::Float32),
               std::logic_error);
}

TEST(ShardTest, GuestsAreReadWhereTheirSamplesLie) {
  const TableDataset data = balanced(10, 10);
  const Partition partition = sample();
  const Shard home(data, partition, {1, 2, 3}, Standardize::Half, DType::Float32);
  Shard other(data, partition, {0}, Standardize::Half, DType::Float32);
  const Ids guests = {1, 2, 3};
  for (const auto what : {Shard::Packed::All, Shard::Packed::Training}) {
    const bool all = what == Shard::Packed::All;
    // Stacks of targets and features, of 4 training and 4 test samples, in lines of 64 bytes.
    ASSERT_EQ(home.packed_bytes(guests, what), all ? 4 * 64 : 2 * 64);
    const Tensor memory = at::empty({home.packed_bytes(guests, what)}, at::kByte);
    home.pack(guests, memory.data_ptr(), what);
    const auto there =
        std::make_shared<const Shard>(other.reading(guests, memory.const_data_ptr(), what));
    other.take_in_({{2, there}, {3, there}});
    EXPECT_EQ(other.train_count(2), 3);
    EXPECT_EQ(other.test_count(3), all ? 2 : 0);
    EXPECT_FALSE(other.holds(2));
    EXPECT_EQ(other.position(0), 0);
    EXPECT_EQ(other.position(3), 2) << "behind its own and the guest before";
    EXPECT_EQ(&other.of(3), there.get());
    EXPECT_EQ(&other.of(0), &other);
    const Batch batch = gather(other, 2, Ids{2, 0, 1});
    expect_rows<float>(batch.features[0], {21, 39, 5}, Standardize::Half);
    expect_rows<float>(gather(other, 3, Ids{0}).features[0], {8}, Standardize::Half);
    expect_rows<float>(gather(other, 0, Ids{1}).features[0], {3}, Standardize::Half);
    if (all) {
      const Batch test = gather_rows(*there, there->test_begin(3), there->test_begin(3) + 2);
      expect_rows<float>(test.features, {9, 2}, Standardize::Half);
    }
    EXPECT_THROW(other.train_count(1), std::logic_error) << "no guest";
    EXPECT_THROW(other.take_in_({{1, std::make_shared<const Shard>(other)}}), std::logic_error);
    other.take_in_({});
    EXPECT_THROW(other.train_count(2), std::logic_error);
  }
}

TEST(ShardTest, LoadsIntoMemoryOfOthers) {
  const TableDataset data = balanced(10, 10);
  const Partition partition = sample();
  const Shard plain(data, partition, {0, 1, 2, 3}, Standardize::Unit, DType::Float64);
  Shard shard(data, partition, {0, 1, 2, 3}, Standardize::Unit, DType::Float64, Shard::kHeldBytes,
              Shard::Load::Later);
  const Tensor memory = at::full({shard.packed_bytes(shard.clients())}, 0xff, at::kByte);
  shard.load_(data, memory.data_ptr());
  const Tensor packed = at::full({plain.packed_bytes(plain.clients())}, 0xff, at::kByte);
  plain.pack(plain.clients(), packed.data_ptr());
  EXPECT_TRUE(memory.equal(packed)) << "the one place of packed samples";
  expect_rows<double>(gather(shard, 2, Ids{2, 0, 1}).features[0], {21, 39, 5}, Standardize::Unit);
  expect_rows<double>(gather_rows(shard, 1, 4).features, {40, 7, 9}, Standardize::Unit);
  EXPECT_EQ(shard.label_histogram(2), plain.label_histogram(2));
  EXPECT_EQ(shard.largest_client(), 3);
}

}  // namespace
}  // namespace fedhpc
