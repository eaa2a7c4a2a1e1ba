// `base = FILE` in a configuration: what is read, in which order, and what is refused.

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"

#include "fixtures/temporary_folder.hpp"

namespace fedhpc {
namespace {

namespace fs = std::filesystem;

class BaseOfIniTest : public testing::Test {
 protected:
  BaseOfIniTest() { fs::create_directories(folder_.path("bases")); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path(name)) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string refusal() const {
    try {
      read_ini(path("run.ini"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  void expect_refusal(const std::vector<std::string>& words) const {
    const std::string message = refusal();
    for (const std::string& word : words) {
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(BaseOfIniTest, KeysOfTheFileWinAndEachKnowsItsPlace) {
  write("bases/all.ini", "# all\n[run]\nrounds = 1\nseed = 1\n[train]\nlr = 1\n");
  write("bases/some.ini", "base = all.ini\n[run]\nseed = 2\n[data]\nclients = 2\n");
  const std::string run = write("run.ini",
                                "# a row\nbase = \"bases/some.ini\" # its table\n\n"
                                "[run]\nrounds = 3\n");
  const std::vector<Assignment> lines = read_ini(run);
  EXPECT_EQ(lookup(lines, "run.rounds", ""), "3");
  EXPECT_EQ(lookup(lines, "run.seed", ""), "2");
  EXPECT_EQ(lookup(lines, "train.lr", ""), "1");
  EXPECT_EQ(lookup(lines, "data.clients", ""), "2");
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines.front().origin.place, path("bases/all.ini") + ":3");
  EXPECT_EQ(lines.front().origin.file, path("bases/all.ini"));
  EXPECT_EQ(lines[3].origin.place, path("bases/some.ini") + ":3");
  EXPECT_EQ(lines.back().origin.place, run + ":5");
  EXPECT_LT(lines[0].origin.level, lines[3].origin.level);
  EXPECT_LT(lines[3].origin.level, lines[5].origin.level);
  EXPECT_EQ(lines.back().origin.level, Level::File);
  for (const Assignment& line : lines) EXPECT_TRUE(is_of_file(line.origin.level));
}

TEST_F(BaseOfIniTest, TheSameFileMayBeTheBaseOfMany) {
  write("bases/all.ini", "[run]\nrounds = 1\n");
  write("run.ini", "base = ./bases/../bases/all.ini\n[run]\nseed = 4\n");
  EXPECT_EQ(refusal(), "accepted");
  write("run.ini", concat("base = ", path("bases/all.ini"), "\n[run]\nseed = 4\n"));
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(BaseOfIniTest, ACircleIsRefused) {
  write("bases/all.ini", "base = ../run.ini\n[run]\nrounds = 1\n");
  write("run.ini", "base = bases/all.ini\n");
  expect_refusal({path("bases/all.ini") + ":1: base '../run.ini' closes a circle", path("run.ini"),
                  "drop the line base = ..."});
  write("run.ini", "base = run.ini\n");
  expect_refusal({path("run.ini") + ":1: base 'run.ini' closes a circle"});
}

TEST_F(BaseOfIniTest, AFileThatCannotBeReadIsNamedWithTheOneThatNamesIt) {
  write("run.ini", "\nbase = bases/none.ini\n");
  expect_refusal({path("run.ini") + ":2: base 'bases/none.ini'", path("bases/none.ini"),
                  "cannot be read: No such file or directory",
                  "from the folder of the file that has it"});
  write("run.ini", "base = bases\n");
  expect_refusal({"base 'bases'", "it is a folder"});
  write("run.ini", "base =\n");
  expect_refusal({path("run.ini") + ":1: base ''", "is empty"});
  write("run.ini", "base = \"\"\n");
  expect_refusal({path("run.ini") + ":1: base ''", "is empty"});
  write("run.ini", "base = /dev/null\n");
  expect_refusal({"base '/dev/null'", "is not a file"});
  write("bases/all.ini", std::string("\x89HDF\r\n\x1a\n\0\0", 10));
  write("run.ini", "base = bases/all.ini\n");
  expect_refusal({"base 'bases/all.ini'", path("run.ini"), "is not text"});
}

TEST_F(BaseOfIniTest, OneBaseAndAheadOfTheFirstSection) {
  write("run.ini", "base = a.ini\n# or\nbase = b.ini\n");
  expect_refusal({path("run.ini") + ":3: base 'b.ini'", path("run.ini") + ":1", "'a.ini'",
                  "keep one of them"});
  write("run.ini", "bases = a.ini\n");
  expect_refusal({path("run.ini") + ":1: 'bases = a.ini' stands before any [section]"});
  write("run.ini", "base\n");
  expect_refusal({"'base' stands before any [section]"});
  write("run.ini", "[run]\nbase = a.ini\n");
  EXPECT_EQ(read_ini(path("run.ini")).front().key, "run.base");
}

TEST_F(BaseOfIniTest, WhatIsWrongInABaseHasItsPlace) {
  write("bases/all.ini", "[run]\nrounds 5\n");
  write("run.ini", "base = bases/all.ini\n");
  expect_refusal({path("bases/all.ini") + ":2: 'rounds 5' is not of the form key = value"});
  write("bases/all.ini", "[run]\nseed = 1\nseed = 2\n");
  expect_refusal({path("bases/all.ini") + ":3: key 'run.seed' is given twice"});
}

TEST_F(BaseOfIniTest, TextInMemoryHasNone) {
  try {
    parse_ini("base = a.ini\n[run]\nseed = 1\n", "run.h5");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("run.h5:1: base 'a.ini'"), std::string::npos);
  }
}

}  // namespace
}  // namespace fedhpc
