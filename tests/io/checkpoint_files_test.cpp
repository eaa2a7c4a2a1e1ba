#include "fedhpc/io/checkpoint_files.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/time_limit.hpp"

#include "fixtures/temporary_folder.hpp"

namespace fedhpc {
namespace {

namespace fs = std::filesystem;

class FolderTest : public ::testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& text = "x") const {
    std::ofstream(folder_.path(name)) << text;
    return folder_.path(name);
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  const testing_support::TemporaryFolder folder_;
};

using CheckpointFilesTest = FolderTest;
using DurableTest = FolderTest;

TEST_F(CheckpointFilesTest, NamesLeadBothWays) {
  EXPECT_EQ(checkpoint_path("a/run.h5", 12), "a/run.ckpt.12.h5");
  EXPECT_EQ(checkpoint_path("run", 3), "run.ckpt.3.h5");
  EXPECT_EQ(results_of_checkpoint("a/run.ckpt.12.h5").path, "a/run.h5");
  EXPECT_EQ(results_of_checkpoint("a/run.ckpt.12.h5").round, 12);
  for (const char* other : {"run.h5", "run.ckpt.h5", "run.ckpt.x.h5", "run.ckpt.1.h5.tmp",
                            ".ckpt.1.h5", "run.ckpt.-1.h5", "run.ckpt.1x.h5", ""}) {
    EXPECT_EQ(results_of_checkpoint(other).path, "") << other;
  }
}

TEST_F(CheckpointFilesTest, NewestComesFirst) {
  const std::string run = make("run.h5");
  for (const char* name : {"run.ckpt.9.h5", "run.ckpt.100.h5", "run.ckpt.20.h5", "other.ckpt.7.h5",
                           "run.ckpt.30.h5.tmp", "run2.ckpt.1.h5"}) {
    make(name);
  }
  std::vector<std::int64_t> rounds;
  for (const CheckpointFile& file : checkpoints_of(run)) rounds.push_back(file.round);
  EXPECT_EQ(rounds, (std::vector<std::int64_t>{100, 20, 9}));
  EXPECT_TRUE(checkpoints_of("/nonexistent/run.h5").empty());
}

TEST_F(CheckpointFilesTest, RemovesOnlyItsOwn) {
  const std::string run = make("run.h5");
  const std::string kept = make("run.ckpt.20.h5");
  for (const char* name : {"run.ckpt.9.h5", "run.ckpt.30.h5.tmp", "other.ckpt.9.h5"}) make(name);
  remove_checkpoints(run, {kept});
  EXPECT_EQ(names(), (std::vector<std::string>{"other.ckpt.9.h5", "run.ckpt.20.h5", "run.h5"}));
}

TEST_F(CheckpointFilesTest, OneLockForAllThatSharesCheckpoints) {
  EXPECT_EQ(lock_path("a/run.h5"), "a/run.lock");
  EXPECT_EQ(lock_path("run"), "run.lock");
  EXPECT_NE(lock_path("run2.h5"), "run.lock");
  for (const char* name : {"a/run.lock", "run.h5.tmp", "run.ckpt.2.h5"}) {
    EXPECT_TRUE(is_name_beside(name)) << name;
  }
  for (const char* name : {"run.h5", "run", "lock", "run.ckpt.h5", "run.old1.h5"}) {
    EXPECT_FALSE(is_name_beside(name)) << name;
  }
}

TEST_F(CheckpointFilesTest, AnEarlierResultIsSetAsideWithItsCheckpoints) {
  const std::string run = folder_.path("run.h5");
  EXPECT_EQ(set_aside(run), "");
  for (const std::string text : {"one", "two"}) {
    make("run.h5", text);
    make("run.ckpt.20.h5", text);
    make("run.ckpt.10.h5", text);
    set_aside(run);
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"run.old1.ckpt.10.h5", "run.old1.ckpt.20.h5",
                                               "run.old1.h5", "run.old2.ckpt.10.h5",
                                               "run.old2.ckpt.20.h5", "run.old2.h5"}));
  EXPECT_EQ(read(folder_.path("run.old2.ckpt.20.h5")), "two");
  make("run.h5");
  make("run.ckpt.20.h5");
  make("run.ckpt.30.h5");
  EXPECT_EQ(set_aside(run, 20), folder_.path("run.old3.h5"));
  EXPECT_TRUE(fs::exists(folder_.path("run.ckpt.20.h5")));
  EXPECT_TRUE(fs::exists(folder_.path("run.old3.ckpt.30.h5")));
}

TEST_F(CheckpointFilesTest, ANameWithoutSuffixIsSetAsideAsOne) {
  EXPECT_EQ(set_aside(make("run")), folder_.path("run.old1"));
  EXPECT_EQ(checkpoint_path("run.old1", 5), "run.old1.ckpt.5.h5");
}

TEST_F(DurableTest, ReplacesWholeFiles) {
  const std::string old = make("old", "before");
  replace_file(make("new", "after"), old);
  EXPECT_EQ(read(old), "after");
  EXPECT_FALSE(fs::exists(folder_.path("new")));
  EXPECT_THROW(replace_file(folder_.path("missing"), old), Error);
  EXPECT_EQ(read(old), "after");
}

TEST_F(DurableTest, FollowsLinks) {
  const std::string file = make("file");
  fs::create_symlink(file, folder_.path("link"));
  EXPECT_EQ(link_target(folder_.path("link")), fs::canonical(file).string());
  EXPECT_EQ(link_target(file), file);
  EXPECT_EQ(link_target("missing"), "missing");
}

TEST_F(DurableTest, KnowsItsFileSystem) {
  EXPECT_GT(free_bytes(folder_.path()), 0);
  EXPECT_GT(free_bytes("/nonexistent"), std::int64_t{1} << 60);
  EXPECT_TRUE(keeps_write_order("/proc"));  // no network behind it
  EXPECT_EQ(folder_of("a/b.h5"), "a");
  EXPECT_EQ(folder_of("b.h5"), ".");
}

TEST(WithinTime, GivesTheTextOfWorkThatEnds) {
  const std::string text(100'000, 'x');  // more than a pipe holds
  EXPECT_EQ(within_time(20, [&] { return text; }), text);
  EXPECT_EQ(within_time(20, [] { return std::string(); }), "");
}

TEST(WithinTime, ASignalForTheRunIsNotForTheWork) {
  EXPECT_EQ(within_time(20,
                        [] {
                          for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) raise(number);
                          return std::string("whole");
                        }),
            "whole");
}

TEST(WithinTime, GivesNothingForWorkThatDoesNot) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(within_time(0.2, [] {
    std::this_thread::sleep_for(std::chrono::hours(1));
    return std::string("late");
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  EXPECT_FALSE(within_time(20, []() -> std::string { throw Error("damaged"); }));
  EXPECT_FALSE(within_time(20, []() -> std::string { _exit(0); }));
}

}  // namespace
}  // namespace fedhpc
