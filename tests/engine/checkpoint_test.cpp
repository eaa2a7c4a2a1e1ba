#include "fedhpc/engine/checkpoint.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/engine/recorder.hpp"
#include "fedhpc/io/checkpoint_files.hpp"

#include "fixtures/resumed_run.hpp"

namespace fedhpc::testing {
namespace {

namespace fs = std::filesystem;

/// A run of three rounds on this rank alone, with a checkpoint after each.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    experiment_.run([&](const RoundReport& report) {
      recorder_.record(report);
      checkpointer_.write(report.round, recorder_.file());
    });
  }

  std::string path(std::int64_t round) const { return checkpoint_path(results_, round); }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  SharedFolder folder_{*world_};
  std::unique_ptr<Communicator> comm_ = local_communicator();
  std::string results_ = folder_.file(concat("run", world_->rank(), ".h5"));
  Config config_{assignments_of(tiny_keys({{"run.output", results_}})), "tiny.ini"};
  Experiment experiment_{config_, *comm_};
  Recorder recorder_{experiment_, *comm_, "test"};
  Checkpointer checkpointer_{experiment_, *comm_};
};

TEST_F(CheckpointTest, TheLastTwoReadBack) {
  ASSERT_EQ(checkpoints_of(results_).size(), 2U);
  EXPECT_NO_THROW(check_checkpoint(path(3), 3, experiment_));
  EXPECT_NO_THROW(check_checkpoint(path(2), 2, experiment_));
}

TEST_F(CheckpointTest, WhatDoesNotReadBackIsNoCheckpoint) {
  EXPECT_THROW(check_checkpoint(path(3), 2, experiment_), Error);
  {
    const h5::Handle file = h5::open_file(path(3), h5::Mode::ReadWrite);
    ASSERT_GE(H5Ldelete(file.id(), "/state/global", H5P_DEFAULT), 0);
  }
  EXPECT_THROW(check_checkpoint(path(3), 3, experiment_), Error);
  fs::resize_file(path(2), fs::file_size(path(2)) - 1);
  try {
    check_checkpoint(path(2), 2, experiment_);
    FAIL() << "read back";
  } catch (const DataError& error) {
    FAIL() << "called bad input: " << error.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("does not read back"), std::string::npos);
  }
}

TEST_F(CheckpointTest, OneThatCannotBeWrittenLeavesTheOlderOnes) {
  fs::create_directories(path(4) + ".tmp/x");
  try {
    checkpointer_.write(4, recorder_.file());
    FAIL() << "written";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'fedhpc resume " + results_ + "' goes on after round 3"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(checkpoints_of(results_).size(), 2U);
  EXPECT_NO_THROW(check_checkpoint(path(3), 3, experiment_));
}

TEST_F(CheckpointTest, RoomIsEstimatedFromTheRun) {
  const StateBytes state = state_bytes(experiment_, *comm_);
  EXPECT_GT(state.now, 0);
  EXPECT_GE(state.full, state.now);
  const auto written = static_cast<std::int64_t>(fs::file_size(results_));
  const RoomNeeded needed = room_needed(experiment_, 1000, written, state);
  const auto checkpoint = static_cast<double>(fs::file_size(path(3)));
  constexpr double kSlack = 256 * 1024;  // which writing a checkpoint asks for
  EXPECT_GT(needed.first, kSlack + checkpoint / 2);
  EXPECT_LT(needed.first, kSlack + checkpoint * 2);
  EXPECT_GT(needed.all, 3 * (needed.first - kSlack));
  EXPECT_EQ(check_room(config_, needed, std::int64_t{1} << 40), "");
  EXPECT_NE(check_room(config_, needed, static_cast<std::int64_t>(needed.all) - 1).find("MB"),
            std::string::npos);
  EXPECT_THROW(
      static_cast<void>(check_room(config_, needed, static_cast<std::int64_t>(needed.first) - 1)),
      ConfigError);
}

TEST(WayOn, DependsOnWhatIsThere) {
  EXPECT_EQ(way_on("/nonexistent/run.h5"),
            "give the same command again: there is no checkpoint of it yet");
}

TEST(ShellWord, IsQuotedWhereAShellNeedsIt) {
  EXPECT_EQ(shell_word("a/b-1.h5"), "a/b-1.h5");
  EXPECT_EQ(shell_word("a #3.h5"), "'a #3.h5'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("-a.h5"), "./-a.h5");
}

}  // namespace
}  // namespace fedhpc::testing
