#include "fedhpc/io/file_lock.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "fixtures/temporary_folder.hpp"

namespace fedhpc {
namespace {

class FileLockTest : public testing::Test {
 protected:
  void SetUp() override { std::ofstream(path_) << "x"; }

  const testing_support::TemporaryFolder folder_;
  const std::string path_ = folder_.path("lock");
};

TEST_F(FileLockTest, HoldsUntilDestroyed) {
  EXPECT_FALSE(is_locked(path_));
  {
    const FileLock lock(path_);
    EXPECT_TRUE(is_locked(path_));
    const FileLock second(path_);  // shared
    EXPECT_TRUE(is_locked(path_));
  }
  EXPECT_FALSE(is_locked(path_));
}

TEST_F(FileLockTest, MovesLeaveOneOwner) {
  FileLock outer;
  {
    FileLock first(path_);
    FileLock second(std::move(first));
    outer = std::move(second);
  }
  EXPECT_TRUE(is_locked(path_));
  FileLock& same = outer;
  outer = std::move(same);
  EXPECT_TRUE(is_locked(path_));
  outer = FileLock();
  EXPECT_FALSE(is_locked(path_));
}

TEST_F(FileLockTest, MissingFile) {
  EXPECT_FALSE(is_locked(path_ + ".missing"));
  const FileLock lock(path_ + ".missing");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".missing"));
}

using State = LockFile::State;

class LockFileTest : public testing::Test {
 protected:
  bool there() const { return std::filesystem::exists(path_); }

  const testing_support::TemporaryFolder folder_;
  const std::string path_ = folder_.path("only.lock");
};

TEST_F(LockFileTest, OneHoldsItAndItsFileGoesWithIt) {
  LockFile kept;
  EXPECT_EQ(kept.state(), State::None);
  {
    LockFile first(path_);
    EXPECT_EQ(first.state(), State::Held);
    EXPECT_FALSE(first.taken_over());
    const LockFile second(path_);
    EXPECT_EQ(second.state(), State::Taken);
    EXPECT_EQ(second.reason().find("process " + std::to_string(getpid()) + " on "), 0U);
    kept = std::move(first);
  }
  EXPECT_TRUE(there());
  EXPECT_EQ(LockFile(path_).state(), State::Taken);
  LockFile& same = kept;
  kept = std::move(same);
  EXPECT_EQ(kept.state(), State::Held);
  kept = LockFile();
  EXPECT_FALSE(there());
  EXPECT_EQ(LockFile(path_).state(), State::Held);
  EXPECT_FALSE(there());
}

TEST_F(LockFileTest, AKilledProcessLeavesAFileThatLocksNothing) {
  const pid_t child = fork();
  if (child == 0) {
    const LockFile lock(path_);
    pause();
    _exit(0);
  }
  while (!there() || std::filesystem::file_size(path_) == 0) usleep(1000);
  EXPECT_EQ(LockFile(path_).state(), State::Taken);
  kill(child, SIGKILL);
  const LockFile next(path_);  // while the child may still be on its way out
  EXPECT_EQ(next.state(), State::Held);
  EXPECT_TRUE(next.taken_over());
  waitpid(child, nullptr, 0);
}

TEST_F(LockFileTest, NobodyLocksAFileThatIsBeingRemoved) {
  std::atomic<int> holders = 0;
  std::atomic<int> held = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100 || held <= 10; ++i) {  // on a busy machine most tries are in vain
        const LockFile lock(path_);
        if (lock.state() != State::Held) continue;
        const int now = ++holders;
        if (now > most) most = now;
        ++held;
        std::this_thread::yield();
        --holders;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_GT(held, 10);
  EXPECT_FALSE(there());
}

TEST_F(LockFileTest, SaysWhereNoFileCanBe) {
  const LockFile lock(path_ + "/missing/run.lock");
  EXPECT_EQ(lock.state(), State::NoFile);
  EXPECT_FALSE(lock.reason().empty());
}

TEST_F(LockFileTest, LeavesAFileOfAnotherAlone) {
  for (const std::string text : {"version = 1\n", "12 node7", "12 node7 more\n", "12\n"}) {
    std::ofstream(path_) << text;
    const LockFile lock(path_);
    EXPECT_EQ(lock.state(), State::NoFile);
    EXPECT_EQ(lock.reason(), "another file has this name");
    std::ostringstream left;
    left << std::ifstream(path_).rdbuf();
    EXPECT_EQ(left.str(), text);
  }
  std::ofstream(path_) << "12 node7\n";  // of a killed process
  EXPECT_EQ(LockFile(path_).state(), State::Held);
}

TEST_F(LockFileTest, FollowsNoLink) {
  const std::string target = path_ + ".target";
  std::filesystem::create_symlink(target, path_);
  EXPECT_EQ(LockFile(path_).state(), State::NoFile);
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_FALSE(std::filesystem::exists(target));
}

}  // namespace
}  // namespace fedhpc
