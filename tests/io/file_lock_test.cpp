#include "fedhpc/io/file_lock.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

class FileLockTest : public testing::Test {
 protected:
  void SetUp() override { std::ofstream(path_) << "x"; }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("lock." + std::to_string(getpid()))).string();
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

}  // namespace
}  // namespace fedhpc
