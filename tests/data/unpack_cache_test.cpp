#include "data/unpack_cache.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/byte_source.hpp"
#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;

class UnpackCacheTest : public ::testing::Test {
 protected:
  UnpackCacheTest() {
    fs::create_directories(folder_.path("data"));
    write_bytes(path_, xz_bytes(content_));
  }
  ~UnpackCacheTest() override { fs::permissions(folder_.path("data"), fs::perms::owner_all); }

  std::vector<std::string> copies(const std::string& below) const {
    std::vector<std::string> found;
    if (!fs::exists(folder_.path(below))) return found;
    for (const auto& entry : fs::directory_iterator(folder_.path(below))) {
      if (entry.path().string() != path_) found.push_back(entry.path().string());
    }
    return found;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path("data/batch.bin.xz");
  Bytes content_ = Bytes(std::size_t{5} << 20, 7);
  Variable chosen_{"FEDHPC_CACHE", ""};
  Variable caches_{"XDG_CACHE_HOME", folder_.path("caches")};
};

TEST_F(UnpackCacheTest, ACopyStandsBesideTheFileAndIsRead) {
  EXPECT_EQ(unpacked_copy(path_), std::nullopt);
  EXPECT_EQ(read_bytes(path_), content_);
  EXPECT_EQ(copies("data"), std::vector<std::string>{path_ + ".unpacked"});
  EXPECT_EQ(unpacked_copy(path_), content_);
  EXPECT_EQ(read_bytes(path_), content_);
  const std::vector<std::string> folders = folders_of_copies();
  EXPECT_NE(std::find(folders.begin(), folders.end(), folder_.path("data")), folders.end());
}

TEST_F(UnpackCacheTest, AFolderThatMayNotBeWrittenIsLeftAlone) {
  fs::permissions(folder_.path("data"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(read_bytes(path_), content_);
  EXPECT_TRUE(copies("data").empty());
  EXPECT_EQ(copies("caches/fedhpc").size(), 1U);
  EXPECT_EQ(unpacked_copy(path_), content_);
}

TEST_F(UnpackCacheTest, TheEnvironmentNamesAFolderOrNone) {
  chosen_.set("off");
  EXPECT_EQ(read_bytes(path_), content_);
  EXPECT_TRUE(copies("data").empty());
  chosen_.set(folder_.path("chosen"));
  EXPECT_EQ(read_bytes(path_), content_);
  EXPECT_TRUE(copies("data").empty());
  EXPECT_EQ(copies("chosen").size(), 1U);
}

TEST_F(UnpackCacheTest, WhatIsSmallIsNotKept) {
  write_bytes(path_, xz_bytes(Bytes(1000, 1)));
  EXPECT_EQ(read_bytes(path_).size(), 1000U);
  EXPECT_TRUE(copies("data").empty());
}

TEST_F(UnpackCacheTest, ADamagedCopyIsReplaced) {
  read_bytes(path_);
  const std::string copy = path_ + ".unpacked";
  const auto size = static_cast<std::streamoff>(fs::file_size(copy));
  for (const std::streamoff place : {std::streamoff{3}, std::streamoff{20}, size / 2, size - 1}) {
    {
      std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(place);
      file.put('\x55');
    }
    EXPECT_EQ(unpacked_copy(path_), std::nullopt) << place;
    EXPECT_EQ(read_bytes(path_), content_);
    EXPECT_EQ(unpacked_copy(path_), content_) << place;
  }
  for (const std::streamoff left : {std::streamoff{0}, std::streamoff{100}, size - 1}) {
    fs::resize_file(copy, static_cast<std::uintmax_t>(left));
    EXPECT_EQ(read_bytes(path_), content_);
    EXPECT_EQ(unpacked_copy(path_), content_) << left;
  }
}

TEST_F(UnpackCacheTest, ACopyOfAnotherFileIsReplaced) {
  read_bytes(path_);
  const Bytes other(std::size_t{6} << 20, 9);
  write_bytes(path_, xz_bytes(other));
  EXPECT_EQ(read_bytes(path_), other);
  EXPECT_EQ(unpacked_copy(path_), other);
}

TEST_F(UnpackCacheTest, SeveralMayKeepACopyAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 3; ++k) keep_unpacked(path_, content_);
    });
  }
  for (int k = 0; k < 5; ++k) {
    const auto found = unpacked_copy(path_);
    EXPECT_TRUE(!found || *found == content_);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(copies("data"), std::vector<std::string>{path_ + ".unpacked"});
  EXPECT_EQ(unpacked_copy(path_), content_);
}

}  // namespace
}  // namespace fedhpc
