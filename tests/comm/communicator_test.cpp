#include "fedhpc/comm/communicator.hpp"

#include <string>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "comm/kinds.hpp"

namespace fedhpc {
namespace {

// Integer values make every sum exact, so that collectives compare bit for bit.
class CommunicatorTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, Kind>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }

  std::unique_ptr<Communicator> world_ = world_of(std::get<1>(GetParam()));
  const int rank_ = world_->rank();
  const int size_ = world_->size();
};

TEST_P(CommunicatorTest, SumsOverRanks) {
  Tensor values = at::arange(1000, type()).add(rank_);
  world_->sum_(values);
  const Tensor expected = at::arange(1000, type()).mul(size_).add(size_ * (size_ - 1) / 2);
  EXPECT_TRUE(values.equal(expected));
}

TEST_P(CommunicatorTest, TakesTheMaximum) {
  Tensor values = at::tensor({rank_, -rank_, 7}, type());
  world_->max_(values);
  EXPECT_TRUE(values.equal(at::tensor({size_ - 1, 0, 7}, type())));
}

TEST_P(CommunicatorTest, BroadcastsFromAnyRank) {
  for (int root = 0; root < size_; ++root) {
    Tensor values = at::full({3, 4}, rank_, type());
    world_->broadcast_(values, root);
    EXPECT_TRUE(values.equal(at::full({3, 4}, root, type())));
  }
}

TEST_P(CommunicatorTest, GathersRowsInRankOrder) {
  // Rank r gives r rows: rank 0 gives none.
  const Tensor mine = at::full({rank_, 3}, rank_, type());
  const Tensor all = world_->gather(mine, size_ - 1);
  if (rank_ != size_ - 1) {
    EXPECT_EQ(all.size(0), 0);
    return;
  }
  ASSERT_EQ(all.sizes().vec(), (std::vector<std::int64_t>{size_ * (size_ - 1) / 2, 3}));
  std::int64_t row = 0;
  for (int r = 0; r < size_; ++r) {
    for (int i = 0; i < r; ++i) EXPECT_EQ(all[row++][2].item<double>(), r);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CommunicatorTest, kKinds, name_of);

TEST(Communicator, ExchangesTexts) {
  const auto world = world_communicator(60);
  const std::string mine(static_cast<std::size_t>(world->rank()), 'x');  // rank 0: empty
  const std::vector<std::string> all = world->all_texts(mine);
  ASSERT_EQ(static_cast<int>(all.size()), world->size());
  for (int r = 0; r < world->size(); ++r) {
    EXPECT_EQ(all[static_cast<std::size_t>(r)].size(), static_cast<std::size_t>(r));
  }
}

TEST(Communicator, SplitsByColour) {
  const auto world = world_communicator(60);
  const int colour = world->rank() % 2;
  const auto part = world->split(colour);
  const int expected = (world->size() + 1 - colour) / 2;
  EXPECT_EQ(part->size(), expected);
  EXPECT_EQ(part->rank(), world->rank() / 2);
  Tensor values = at::tensor({world->rank()}, at::kLong);
  part->sum_(values);
  std::int64_t sum = 0;
  for (int r = colour; r < world->size(); r += 2) sum += r;
  EXPECT_EQ(values.item<std::int64_t>(), sum);
  EXPECT_EQ(part->traffic().collectives, 1);
}

TEST(Communicator, LeavesRanksOutOfAllParts) {
  const auto world = world_communicator(60);
  const bool inside = world->rank() > 0;
  const auto part = world->split(inside ? 0 : Communicator::kNoPart);
  EXPECT_EQ(part != nullptr, inside);
  EXPECT_EQ(part ? part->size() : 0, inside ? world->size() - 1 : 0);
  EXPECT_EQ(local_communicator()->split(Communicator::kNoPart), nullptr);
}

TEST(Communicator, CountsItsOwnBytes) {
  const auto world = world_communicator(60);
  Tensor values = at::full({10}, 1, at::kDouble);
  world->sum_(values);
  world->broadcast_(values, 0);
  EXPECT_EQ(world->traffic().collectives, 2);
  EXPECT_EQ(world->traffic().bytes, 160);
}

TEST(Communicator, RefusesWhatItCannotSend) {
  const auto world = world_communicator(60);
  if (world->size() == 1) GTEST_SKIP() << "one process sends nothing";
  Tensor bytes = at::full({4}, 1, at::kByte);
  EXPECT_THROW(world->sum_(bytes), std::logic_error);
  Tensor transposed = at::full({4, 3}, 1, at::kFloat).t();
  EXPECT_THROW(world->sum_(transposed), std::logic_error);
}

TEST(Communicator, GivesUpOnAMissingRank) {
  const auto patient = world_communicator(60);
  if (patient->size() == 1) GTEST_SKIP() << "nobody to wait for";
  const auto hasty = world_communicator(0.3);
  if (patient->rank() == 0) {
    // The last rank to arrive finds all others waiting, and completes the barrier they gave up on.
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    EXPECT_NO_THROW(hasty->barrier());
  } else {
    try {
      hasty->barrier();
      ADD_FAILURE() << "the barrier ended without rank 0";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("run.collective_timeout"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(": rank 0 on "), std::string::npos) << error.what();
    }
  }
  patient->barrier();
}

TEST(Communicator, TellsWhereEveryRankIsWhenAllWaitForEachOther) {
  const auto patient = world_communicator(60);
  if (patient->size() == 1) GTEST_SKIP() << "nobody to wait for";
  const auto hasty = world_communicator(1);
  const auto one = hasty->split(0);
  const auto other = hasty->split(0);
  Tensor values = at::full({3}, 1, at::kFloat);
  const bool first = hasty->rank() == 0;
  hasty->place() = {.task = first ? Place::Task::Evaluation : Place::Task::Mean, .round = 17};
  const auto evaluate = [&] { one->barrier(); };
  const auto take_mean = [&] { other->sum_(values); };
  try {
    first ? evaluate() : take_mean();
    ADD_FAILURE() << "a collective ended without all of its ranks";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* said :
         {"rank 0 on ", "in a barrier (collective 0), evaluating in round 17", "rank 1 on ",
          "in a sum over ranks (collective 1), taking a mean in round 17"}) {
      EXPECT_NE(text.find(said), std::string::npos) << text;
    }
    EXPECT_EQ(text.find("no sign of life"), std::string::npos) << text;
  }
  patient->barrier();
  first ? take_mean() : evaluate();  // what is under way comes to its end
  patient->barrier();
}

TEST(Communicator, APartSharesItsPlace) {
  const auto world = world_communicator(60);
  const auto part = world->split(0);
  part->place() = {.task = Place::Task::Training, .clients = 2, .round = 3, .client = 7};
  EXPECT_EQ(world->place(), part->place());
}

/// Works for three times as long as the others have patience, in small pieces, each told to them.
void work_for_long(Communicator& comm) {
  for (int piece = 0; piece < 30; ++piece) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comm.progress();
  }
}

TEST(Communicator, WaitsForARankThatGetsOn) {
  const auto world = world_communicator(0.5);
  if (world->rank() == world->size() - 1) work_for_long(*world);
  EXPECT_NO_THROW(world->barrier());
}

TEST(Communicator, WaitsForARankOutsideItsPart) {
  // Rank 1 waits for rank 0, which waits for the last rank in another communicator.
  const auto world = world_communicator(0.5);
  const int last = world->size() - 1;
  if (last < 2) GTEST_SKIP() << "needs three ranks";
  const auto pair = world->split(world->rank() <= 1 ? 0 : 1);
  const auto ends = world->split(world->rank() == 0 || world->rank() == last ? 0 : 1);
  if (world->rank() == last) work_for_long(*world);
  if (world->rank() == 0 || world->rank() == last) {
    EXPECT_NO_THROW(ends->barrier());
  }
  EXPECT_NO_THROW(pair->barrier());
  EXPECT_NO_THROW(world->barrier());
}

TEST(Together, LetsNoRankGoOnAlone) {
  const auto world = world_communicator(60);
  const int last = world->size() - 1;
  const auto message = [&](const std::function<void()>& work) -> std::string {
    try {
      fail_together(*world, work);
    } catch (const ConfigError& error) {
      return std::string("config: ") + error.what();
    } catch (const DataError& error) {
      return std::string("data: ") + error.what();
    }
    return "none";
  };
  EXPECT_EQ(message([] {}), "none");
  EXPECT_EQ(message([&] {
              if (world->rank() == last) throw DataError("truncated");
            }),
            "data: truncated");
  EXPECT_EQ(message([&] { throw ConfigError(concat("rank ", world->rank())); }), "config: rank 0");
}

}  // namespace
}  // namespace fedhpc
