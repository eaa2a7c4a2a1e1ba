#include "fedhpc/engine/plugins.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

#include "fixtures/temporary_folder.hpp"

namespace fedhpc {
namespace {

const std::string kMark = "@(#)fedhpc plug-in for: ";
const std::string kEnd(1, '\0');

class Plugins : public testing::Test {
 protected:
  /// The path of a file with these bytes.
  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.path(name), std::ios::binary) << bytes;
    return std::filesystem::canonical(folder_.path(name)).string();
  }

  const testing_support::TemporaryFolder folder_;
};

std::string refusal(const std::string& path) {
  try {
    load_plugin(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_F(Plugins, AStampIsReadWhereverItStands) {
  const std::string before(100000, 'x');
  EXPECT_EQ(plugin_built_for(file("a", kMark + "fedhpc 9" + kEnd)), "fedhpc 9");
  EXPECT_EQ(plugin_built_for(file("b", before + kEnd + kMark + "fedhpc 9" + kEnd + before)),
            "fedhpc 9");
  // A mark without text, as fedhpc's own library has it, or with other bytes, is none.
  EXPECT_EQ(plugin_built_for(file("c", kMark + kEnd + kMark + "\n" + kEnd + kMark + "x" + kEnd)),
            "x");
  EXPECT_EQ(plugin_built_for(file("d", "@(#)" + kMark + "x" + kEnd)), "x");
}

TEST_F(Plugins, ThereMayBeNoStamp) {
  for (const std::string& bytes :
       {std::string(), kEnd, kMark, kMark + kEnd, kMark + "cut off", kMark + "a\tb" + kEnd,
        kMark.substr(1) + "x" + kEnd, kMark + "\xff" + kEnd}) {
    EXPECT_EQ(plugin_built_for(file("a", bytes)), std::nullopt) << bytes;
  }
  EXPECT_THROW(plugin_built_for(folder_.path("none")), ConfigError);
  EXPECT_THROW(plugin_built_for(folder_.path()), ConfigError);
}

TEST_F(Plugins, WhatTheyAreBuiltForNamesAllThatDecides) {
  for (const char* word : {"fedhpc ", "(headers ", "LibTorch ", "libstdc++"}) {
    EXPECT_NE(plugins_built_for().find(word), std::string::npos) << plugins_built_for();
  }
}

TEST_F(Plugins, AnotherLanguageLoadsItsOwn) {
  std::vector<std::string> seen;
  set_plugin_language(".toy", [&](const std::string& path) {
    seen.push_back(path);
    if (std::filesystem::file_size(path) == 3) throw std::runtime_error("three letters");
  });
  const std::string path = file("mine.toy", "1");
  load_plugin(path);
  load_plugin(path);
  load_plugin(folder_.path("./mine.toy"));
  EXPECT_EQ(seen, std::vector<std::string>{path});
  file("mine.toy", "12");  // it has changed
  load_plugin(path);
  EXPECT_EQ(seen.size(), 2U);
  file("mine.toy", "123");
  for (int i = 0; i < 2; ++i) {  // what has failed is not loaded
    EXPECT_EQ(refusal(path),
              concat("plug-in '", path, "' failed when it was loaded: three letters"));
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST_F(Plugins, PythonIsForPython) {
  const std::string path = file("mine.py", "print()");
  EXPECT_EQ(refusal(path), concat("plug-in '", path,
                                  "' is Python, which this program does not run; call 'python3 -m "
                                  "fedhpc' in the place of 'fedhpc'"));
}

}  // namespace
}  // namespace fedhpc
