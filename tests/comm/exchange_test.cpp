#include <string>

#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "comm/kinds.hpp"

namespace fedhpc {
namespace {

/// Rows [count, 3] that tell who made them: integers, so that they compare bit for bit.
Tensor rows_of(int rank, std::int64_t count, at::ScalarType type) {
  return at::arange(count * 3, type).add(1000 * rank).reshape({count, 3});
}

class ExchangeTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, Kind>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }

  void expect_all_gathered(Communicator& comm, const std::vector<std::int64_t>& counts) const {
    std::vector<Tensor> expected;
    for (int r = 0; r < comm.size(); ++r) {
      expected.push_back(rows_of(r, counts[static_cast<std::size_t>(r)], type()));
    }
    const Tensor all = comm.all_gather(expected[static_cast<std::size_t>(comm.rank())]);
    EXPECT_TRUE(all.equal(at::cat(expected)));
    EXPECT_EQ(all.scalar_type(), type());
  }

  /// The part that rank `from` has for rank `to`: uneven, some of them empty.
  Tensor part(int from, int to) const {
    return rows_of(10 * from + to, (from + 2 * to) % 3, type());
  }

  void expect_all_to_all(Communicator& comm) const {
    std::vector<Tensor> parts;
    for (int r = 0; r < comm.size(); ++r) parts.push_back(part(comm.rank(), r));
    const std::vector<Tensor> received = comm.all_to_all(parts);
    ASSERT_EQ(received.size(), parts.size());
    for (int r = 0; r < comm.size(); ++r) {
      EXPECT_TRUE(received[static_cast<std::size_t>(r)].equal(part(r, comm.rank()))) << r;
    }
  }

  std::unique_ptr<Communicator> world_ = world_of(std::get<1>(GetParam()));
  const int rank_ = world_->rank();
  const int size_ = world_->size();
};

TEST_P(ExchangeTest, GathersRowsOnEveryRank) {
  expect_all_gathered(*world_, {2, 0, 5, 1});
  expect_all_gathered(*world_, {0, 0, 0, 3});
  expect_all_gathered(*world_, {0, 0, 0, 0});
}

TEST_P(ExchangeTest, SendsEveryRankItsPart) { expect_all_to_all(*world_); }

TEST_P(ExchangeTest, StaysInsideAPartOfTheRanks) {
  const auto half = world_->split(rank_ % 2);
  expect_all_gathered(*half, {1, 4});
  expect_all_to_all(*half);
}

TEST_P(ExchangeTest, CarriesRowsOfAnyShape) {
  const Tensor cubes = at::full({rank_ + 1, 2, 5}, rank_, type());
  const Tensor all = world_->all_gather(cubes);
  ASSERT_EQ(all.sizes().vec(), (std::vector<std::int64_t>{size_ * (size_ + 1) / 2, 2, 5}));
  EXPECT_EQ(all[-1][1][4].item<double>(), size_ - 1);
  const Tensor numbers = world_->all_gather(at::full({1}, rank_, type()));
  EXPECT_TRUE(numbers.equal(at::arange(size_, type())));
  const Tensor no_columns = world_->all_gather(at::empty({rank_, 0}, type()));
  EXPECT_EQ(no_columns.sizes().vec(), (std::vector<std::int64_t>{size_ * (size_ - 1) / 2, 0}));
}

TEST_P(ExchangeTest, KeepsWhatItWasGiven) {
  const Tensor mine = rows_of(rank_, 4, type());
  const Tensor before = mine.clone();
  world_->all_gather(mine);
  EXPECT_TRUE(mine.equal(before));
}

INSTANTIATE_TEST_SUITE_P(Types, ExchangeTest, kKinds, name_of);

TEST(Exchange, CountsItsOwnBytesOnce) {
  const auto world = world_communicator(60);
  world->all_gather(at::full({2, 2}, 1, at::kFloat));
  std::vector<Tensor> parts(static_cast<std::size_t>(world->size()), at::full({1}, 1, at::kLong));
  world->all_to_all(parts);
  EXPECT_EQ(world->traffic().collectives, 2);
  EXPECT_EQ(world->traffic().bytes, 16 + 8 * world->size());
}

TEST(Exchange, RefusesPartsThatAreNotOnePerRank) {
  const auto world = world_communicator(60);
  const std::vector<Tensor> parts(static_cast<std::size_t>(world->size() + 1), at::full({1}, 1));
  EXPECT_THROW(world->all_to_all(parts), std::logic_error);
}

TEST(Exchange, RefusesRowsOfAnotherWidth) {
  const auto world = world_communicator(60);
  if (world->size() == 1) GTEST_SKIP() << "one process has nobody to differ from";
  // As many values, but in another shape: seen by every rank that gets them.
  const Tensor rows = world->rank() == 0 ? at::full({2, 3}, 1) : at::full({3, 2}, 1);
  EXPECT_THROW(world->all_gather(rows), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
