// Tests that fail, throw, skip, hang or leave on purpose, for harness_test.py to look at. They use
// MPI_COMM_WORLD, like no other test, to show that the harness does not get in their way there.

#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

namespace {

int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int sum_over_ranks(int value) {
  int sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

TEST(Victim, PassesEverywhere) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(sum_over_ranks(1), size);
}

TEST(Victim, PassesOnAnyNumberOfRanks) { SUCCEED(); }

TEST(Victim, FailsOnRankZero) { EXPECT_NE(rank(), 0) << "text of rank zero"; }

TEST(Victim, FailsOnRankOne) {
  EXPECT_NE(rank(), 1) << "first text of rank one";
  EXPECT_NE(rank(), 1) << "second text: 12:odd\n[characters]";
}

TEST(Victim, FatalOnRankOne) {
  ASSERT_NE(rank(), 1) << "fatal text of rank one";
  EXPECT_NE(rank(), 1) << "not reached by rank one";
}

TEST(Victim, FailsOnAllButRankZero) { EXPECT_EQ(rank(), 0) << "text of rank <" << rank() << ">"; }

TEST(Victim, ThrowsOnRankOne) {
  if (rank() == 1) {
    throw std::runtime_error("exception of rank one");
  }
}

// Larger than what MPI sends without the receiver's help.
TEST(Victim, FailsAtLengthOnRankOne) {
  EXPECT_NE(rank(), 1) << std::string(1'000'000, 'x') << " end of the long text";
}

TEST(Victim, SkipsOnAll) { GTEST_SKIP() << "reason of all"; }

TEST(Victim, SkipsOnRankOne) {
  if (rank() == 1) {
    GTEST_SKIP() << "reason of rank one";
  }
}

TEST(Victim, RankZeroHangs) {
  ASSERT_NE(rank(), 1) << "why rank one left";
  if (rank() == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(Victim, RankOneLeavesCollective) {
  if (rank() != 1) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Does not enter MPI, so it does not help the reports of the others to progress either.
TEST(Victim, RankOneNeverReturns) {
  EXPECT_NE(rank(), 0) << std::string(1'000'000, 'x') << " end of the long text";
  while (rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// The deadline of rank 2 passes before that of rank 0.
TEST(Victim, RankOneHangsAndRankZeroIsLate) {
  if (rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  while (rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

TEST(Victim, RankZeroIsSlow) {
  if (rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
}

TEST(Victim, RankOneExits) {
  if (rank() == 1) {
    std::_Exit(3);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

class VictimOrder : public ::testing::TestWithParam<int> {};

TEST_P(VictimOrder, PassesEverywhere) { EXPECT_GE(sum_over_ranks(GetParam()), 0); }

INSTANTIATE_TEST_SUITE_P(Shuffled, VictimOrder, ::testing::Range(0, 8));

class VictimSetUp : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { EXPECT_NE(rank(), 1) << "set-up of the suite on rank one"; }
};

TEST_F(VictimSetUp, Passes) { SUCCEED(); }

class VictimTearDown : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { EXPECT_NE(rank(), 1) << "tear-down of the suite on rank one"; }
};

TEST_F(VictimTearDown, Passes) { SUCCEED(); }

// Fails or skips on rank 1 where FEDHPC_VICTIM_ENVIRONMENT names the step.
class VictimEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    ASSERT_FALSE(chosen("fail-set-up")) << "set-up of the environment on rank one";
    if (chosen("skip-set-up")) {
      GTEST_SKIP() << "skip of the environment on rank one";
    }
  }

  void TearDown() override {
    EXPECT_FALSE(chosen("fail-tear-down")) << "tear-down of the environment on rank one";
  }

 private:
  static bool chosen(const std::string& step) {
    const char* chosen = std::getenv("FEDHPC_VICTIM_ENVIRONMENT");
    return chosen != nullptr && chosen == step && rank() == 1;
  }
};

const auto* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(std::make_unique<VictimEnvironment>().release());

}  // namespace
