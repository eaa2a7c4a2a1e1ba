#include "fedhpc/core/configuration_source.hpp"

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParseIniTest, GivesKeysValuesAndLines) {
  const auto lines = parse_ini(
      "# a comment\n"
      "[train]\n"
      "lr = 0.5   # trailing comment\r\n"
      "  batch_size=20\n"
      "\n"
      "[data]\n"
      "dir = some folder/with = sign\n"
      "[train]\n"
      "momentum = .9",
      "x.ini");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].key, "train.lr");
  EXPECT_EQ(lines[0].value, "0.5");
  EXPECT_EQ(lines[0].origin.place, "x.ini:3");
  EXPECT_EQ(lines[0].origin.level, Level::File);
  EXPECT_EQ(lines[1].key, "train.batch_size");
  EXPECT_EQ(lines[1].value, "20");
  EXPECT_EQ(lines[2].value, "some folder/with = sign");
  EXPECT_EQ(lines[3].key, "train.momentum");
  EXPECT_EQ(lines[3].origin.place, "x.ini:9");
}

TEST(ParseIniTest, AnEmptyValueReachesTheOptionsThatRefuseIt) {
  const auto lines = parse_ini("[a]\nb =\n", "x.ini");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].value, "");
}

TEST(ParseIniTest, ErrorsNameFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"lr = 1\n", "x.ini:1: 'lr = 1' stands before any [section]"},
      {"[train]\nlr\n", "x.ini:2: 'lr' is not of the form key = value"},
      {"[train]\n\n[data x\n", "x.ini:3: '[data x' is not of the form key = value"},
      {"; all\n[a]\nb = 1\n", "x.ini:1: '; all': comments begin with #"},
      {"[a]\nb = x.h5 ; old\n", "x.ini:2: 'b = x.h5 ; old': comments begin with #"},
      {"[a]\nb = x.h5\t; old\n", "x.ini:2: 'b = x.h5 ; old': comments begin with #"},
      {"# old\r[a]\rb = 7\r", "x.ini:1: a line goes on behind a carriage return"},
      {"[a]\nb = 1\n[c]\nd = 1\n[a]\nb = 2\n",
       "x.ini:6: key 'a.b' is given twice (first at x.ini:2); keep one"},
  };
  for (const auto& [text, expected] : bad) {
    const std::string message = refusal([&] { parse_ini(text, "x.ini"); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST(ParseIniTest, AValueInQuotesHoldsWhatALineCannot) {
  const auto lines = parse_ini(
      "[a]\n"
      "b = \"x #3.h5\" # a comment\n"
      "c=\"\\\"\\\\n \\n\"\r\n"
      "d = \"\"\n"
      "e = 3\" wide\n"
      "f = a\\b # \"no value\"\n",
      "x.ini");
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0].value, "x #3.h5");
  EXPECT_EQ(lines[1].value, "\"\\n \n");
  EXPECT_EQ(lines[2].value, "");
  EXPECT_EQ(lines[3].value, "3\" wide");
  EXPECT_EQ(lines[4].value, "a\\b");
  for (const std::string bad : {"b = \"x", "b = \"x\\", "b = \"x\\\"", "b = \"x\" y"}) {
    const std::string message = refusal([&] { parse_ini("[a]\n" + bad + "\n", "x.ini"); });
    EXPECT_NE(message.find("x.ini:2: '" + bad + "' is not of the form key = \"value\""),
              std::string::npos)
        << message;
  }
}

TEST(ParseIniTest, AnyValueReadsBackTheSame) {
  const std::string letters = "ab #\"\\\n\r\t\v'=;[]$n \x7f\xc3";
  std::mt19937 random(4);
  for (int number = 0; number < 3000; ++number) {
    std::string value;
    for (std::size_t length = random() % 8; value.size() < length;) {
      value += letters[random() % letters.size()];
    }
    const std::string text = "[a]\nb = " + ini_value(value) + "\nc = 1\n";
    const auto lines = parse_ini(text, "x.ini");
    ASSERT_EQ(lines.size(), 2U) << text;
    ASSERT_EQ(lines.front().value, value) << text;
  }
  EXPECT_EQ(ini_value("out/a = \\b \"c\" d.h5"), "out/a = \\b \"c\" d.h5");
}

TEST(ReadIniTest, NamesAFileThatCannotBeRead) {
  EXPECT_NE(refusal([] { read_ini("no/such.ini"); }).find("'no/such.ini' cannot be read"),
            std::string::npos);
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_NE(refusal([&] { read_ini(folder); }).find("cannot be read"), std::string::npos);
}

TEST(ParseCommandLineTest, SplitsAtTheFirstEqualsSign) {
  const auto arguments = parse_command_line({"--train.lr=0.5", "--data.dir=a=b c", "--run.save="});
  ASSERT_EQ(arguments.size(), 3U);
  EXPECT_EQ(arguments[0].key, "train.lr");
  EXPECT_EQ(arguments[0].value, "0.5");
  EXPECT_EQ(arguments[0].origin.level, Level::CommandLine);
  EXPECT_EQ(arguments[1].value, "a=b c");
  EXPECT_EQ(arguments[2].key, "run.save");
  EXPECT_EQ(arguments[2].value, "");
}

TEST(ParseCommandLineTest, RefusesEverythingElse) {
  for (const std::string argument : {"train.lr=1", "-train.lr=1", "--train.lr", "--=1", "--", ""}) {
    const std::string message = refusal([&] { parse_command_line({argument}); });
    EXPECT_NE(message.find("'" + argument + "' is not of the form --section.key=value"),
              std::string::npos)
        << argument << ": " << message;
  }
}

TEST(ParseCommandLineTest, SaysHowAnotherFormIsWritten) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--a.b", "1"}, "'--a.b' is not of the form --section.key=value; did you mean '--a.b=1'?"},
      {{"--a.b", "=", "1"}, "did you mean '--a.b=1'?"},
      {{"--a.b", "=1"}, "did you mean '--a.b=1'?"},
      {{"a.b=1"}, "did you mean '--a.b=1'?"},
      {{"-a.b=1"}, "did you mean '--a.b=1'?"},
  };
  for (const auto& [arguments, expected] : cases) {
    const std::string message = refusal([&] { parse_command_line(arguments); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--a.b"}, {"--a.b", "--c.d=1"}, {"junk"}, {"--"}}) {
    const std::string message = refusal([&] { parse_command_line(arguments); });
    EXPECT_EQ(message.find("did you mean"), std::string::npos) << message;
  }
}

TEST(ParseCommandLineTest, KeepsAKeyThatIsGivenTwice) {
  const auto assignments = parse_command_line({"--a.b=1", "--a.b=2"});
  ASSERT_EQ(assignments.size(), 2U);
  EXPECT_EQ(lookup(assignments, "a.b", ""), "2");
}

TEST(LookupTest, TheHighestLevelAnswers) {
  const std::vector<Assignment> assignments = {
      {"a.b", "command", {Level::CommandLine, "command line"}},
      {"a.b", "file", {Level::File, "x.ini:1"}},
      {"a.c", "file", {Level::File, "x.ini:2"}},
  };
  EXPECT_EQ(lookup(assignments, "a.b", "none"), "command");
  EXPECT_EQ(lookup(assignments, "a.c", "none"), "file");
  EXPECT_EQ(lookup(assignments, "a.d", "none"), "none");
}

}  // namespace
}  // namespace fedhpc
