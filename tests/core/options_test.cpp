#include "fedhpc/core/options.hpp"

#include <gtest/gtest.h>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

enum class Colour { Red, Green };

/// One key of every kind.
struct Sample {
  std::int64_t count = 3;
  double rate = 0.1;
  bool flag = false;
  std::string text;
  std::vector<std::int64_t> sizes{500, 200};
  std::vector<std::string> parts;
  std::string name = "alpha";
  Colour colour = Colour::Red;

  void declare(OptionSet& options) {
    options.add("one.count", count, at_least(std::int64_t{1}), "A count");
    options.add("one.rate", rate, above_up_to(0.0, 1.0), "A rate");
    options.add("one.flag", flag, "A flag");
    options.add("two.text", text, "A text");
    options.add("two.sizes", sizes, count_from(1), "Sizes");
    options.add("two.parts", parts, {"init", "draws"}, "Parts");
    options.add_choice("two.name", name, {"alpha", "beta"}, "A name");
    options.add("two.colour", colour, {{"red", Colour::Red}, {"green", Colour::Green}}, "A colour");
  }
};

class OptionSetTest : public testing::Test {
 protected:
  OptionSetTest() { sample_.declare(options_); }

  std::string refusal(const std::string& key, const std::string& text) {
    try {
      options_.assign(key, text, {Level::File, "x.ini:7"});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  Sample sample_;
  OptionSet options_;
};

TEST(OptionSet, TellsAutoFromZero) {
  OptionSet options;
  std::optional<std::int64_t> budget;
  options.add_or_auto("store.budget", budget, at_least<std::int64_t>(0), "Bytes");
  const Origin origin{Level::File, "x.ini:1"};
  EXPECT_EQ(options.entry("store.budget").default_text, "auto");
  options.assign("store.budget", "0", origin);
  EXPECT_EQ(budget, 0);
  EXPECT_EQ(options.entry("store.budget").print(), "0");
  options.assign("store.budget", "auto", origin);
  EXPECT_EQ(budget, std::nullopt);
  EXPECT_THROW(options.assign("store.budget", "-1", origin), ConfigError);
  EXPECT_EQ(options.entry("store.budget").allowed, "auto or a whole number of at least 0");
}

TEST_F(OptionSetTest, ReadsEveryKind) {
  const Origin origin{Level::File, "x.ini:1"};
  options_.assign("one.count", "+12", origin);
  options_.assign("one.rate", "1e-3", origin);
  options_.assign("one.flag", "true", origin);
  options_.assign("two.text", "a b/c.h5", origin);
  options_.assign("two.sizes", "7, 8", origin);
  options_.assign("two.parts", "draws,init", origin);
  options_.assign("two.name", "beta", origin);
  options_.assign("two.colour", "green", origin);

  EXPECT_EQ(sample_.count, 12);
  EXPECT_EQ(sample_.rate, 1e-3);
  EXPECT_TRUE(sample_.flag);
  EXPECT_EQ(sample_.text, "a b/c.h5");
  EXPECT_EQ(sample_.sizes, (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(sample_.parts, (std::vector<std::string>{"draws", "init"}));
  EXPECT_EQ(sample_.name, "beta");
  EXPECT_EQ(sample_.colour, Colour::Green);
}

TEST_F(OptionSetTest, RefusesValuesAndKeepsTheOldOne) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"one.count", "0"},
      {"one.count", "1.5"},
      {"one.count", "1e3"},
      {"one.count", "+-5"},
      {"one.count", "++5"},
      {"one.count", "5 "},
      {"one.count", "99999999999999999999"},
      {"one.rate", "0"},
      {"one.rate", "1.0000001"},
      {"one.rate", "nan"},
      {"one.rate", "inf"},
      {"one.rate", "+"},
      {"one.rate", "0.5x"},
      {"one.flag", "yes"},
      {"two.sizes", "5,,6"},
      {"two.sizes", "5,"},
      {"two.sizes", "5,0"},
      {"two.sizes", ","},
      {"two.parts", "init,other"},
      {"two.name", "alph"},
      {"two.colour", "Red"},
  };
  for (const auto& [key, text] : bad) {
    const std::string message = refusal(key, text);
    EXPECT_NE(message.find("x.ini:7: key '" + key + "' cannot be '" + text + "'; allowed: "),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(sample_.count, 3);
  EXPECT_EQ(sample_.rate, 0.1);
  EXPECT_EQ(sample_.text, "");
  EXPECT_EQ(sample_.sizes, (std::vector<std::int64_t>{500, 200}));
}

TEST_F(OptionSetTest, SaysWhatWasMeant) {
  const auto expect = [&](const std::string& key, const std::string& text, const std::string& end) {
    const std::string message = refusal(key, text);
    EXPECT_TRUE(message.ends_with(end)) << message;
  };
  expect("one.rate", "0,1", "did you mean '0.1'?");
  expect("one.rate", "0.1 ; slow", "did you mean '0.1'?");
  expect("one.count", "3 # three", "did you mean '3'?");
  expect("one.count", "1e3", "did you mean '1000'?");
  expect("one.flag", "true ; always", "did you mean 'true'?");
  expect("one.count", "99999999999999999999", "a whole number of at least 1, in 64 bits");
  expect("one.rate", "1,5", "of at most 1");  // as 1.5 it is not allowed either
  expect("two.sizes", "5,0", "separated by commas");
  EXPECT_EQ(sample_.count, 3);
  EXPECT_EQ(sample_.rate, 0.1);
}

TEST_F(OptionSetTest, SaysWhatIsAllowed) {
  EXPECT_EQ(options_.entry("one.count").allowed, "a whole number of at least 1");
  EXPECT_EQ(options_.entry("one.rate").allowed, "a number above 0 and of at most 1");
  EXPECT_EQ(options_.entry("one.flag").allowed, "one of: true, false");
  EXPECT_EQ(options_.entry("two.colour").allowed, "one of: red, green");
  EXPECT_EQ(options_.entry("two.sizes").default_text, "500,200");
  EXPECT_NE(refusal("one.flag", "").find("has an empty value; allowed: one of: true, false"),
            std::string::npos);
}

TEST_F(OptionSetTest, NamesTheNearestKey) {
  EXPECT_NE(refusal("one.cuont", "5")
                .find("unknown key 'one.cuont' (value '5'); did you mean 'one.count'?"),
            std::string::npos);
  EXPECT_NE(refusal("network.mbps", "5").find("lists all keys"), std::string::npos);
  EXPECT_NE(refusal("one.coun", "5").find("unknown key"), std::string::npos)
      << "no prefix guessing";
}

TEST_F(OptionSetTest, TheHigherLevelWinsInAnyOrder) {
  EXPECT_EQ(options_.origin("one.count").level, Level::Default);
  options_.assign("one.count", "5", {Level::CommandLine, "command line"});
  options_.assign("one.count", "6", {Level::File, "x.ini:1"});
  EXPECT_EQ(sample_.count, 5);
  EXPECT_EQ(options_.origin("one.count").place, "command line");
  options_.assign("one.count", "7", {Level::CommandLine, "command line"});
  EXPECT_EQ(sample_.count, 7);
  options_.assign("one.rate", "0.5", {base_of(Level::File), "base.ini:1"});
  options_.assign("one.rate", "0.25", {Level::File, "x.ini:2"});
  options_.assign("one.rate", "0.125", {base_of(base_of(Level::File)), "far.ini:1"});
  EXPECT_EQ(sample_.rate, 0.25);
  EXPECT_EQ(options_.origin("one.rate").place, "x.ini:2");
}

TEST_F(OptionSetTest, IniTextReadsBackTheSame) {
  const Origin origin{Level::CommandLine, "command line"};
  options_.assign("one.rate", "0.30000000000000004", origin);
  options_.assign("two.text", " out/a = b #3.h5", origin);
  Sample copy;
  OptionSet copies;
  copy.declare(copies);
  for (const Assignment& line : parse_ini(options_.to_ini(), "copy")) {
    copies.assign(line.key, line.value, line.origin);
  }
  EXPECT_EQ(copies.to_ini(), options_.to_ini());
  EXPECT_EQ(copy.rate, 0.30000000000000004);
  EXPECT_EQ(copy.text, " out/a = b #3.h5");
  EXPECT_EQ(options_.to_ini().substr(0, 17), "[one]\ncount = 3\nr");
}

TEST_F(OptionSetTest, AKeyIsDeclaredOnceAndAskedForByItsName) {
  EXPECT_THROW(options_.add("one.flag", sample_.flag, "again"), ConfigError);
  EXPECT_THROW(options_.entry("one.nothing"), std::logic_error);
  EXPECT_TRUE(options_.contains("two.name"));
  EXPECT_FALSE(options_.contains("two"));
}

TEST_F(OptionSetTest, ChecksAreMadeInTheirOrderOnceKeysHaveValues) {
  std::vector<int> made;
  options_.add_check([&](const OptionSet& given) {
    made.push_back(1);
    given.refuse_unless_default("one.count", "a test");
  });
  options_.add_check([&](const OptionSet&) { made.push_back(2); });
  EXPECT_TRUE(made.empty());
  options_.run_checks();
  EXPECT_EQ(made, (std::vector<int>{1, 2}));
  options_.assign("one.count", "7", {Level::File, "x.ini:1"});
  EXPECT_THROW(options_.run_checks(), ConfigError);
  EXPECT_EQ(made, (std::vector<int>{1, 2, 1}));
}

TEST(NearestTest, CountsSwappedNeighboursOnceAndGivesUpOnOthers) {
  const std::vector<std::string> keys = {"train.lr", "train.block", "data.name"};
  EXPECT_EQ(nearest("train.rl", keys), "train.lr");
  EXPECT_EQ(nearest("data.nmae", keys), "data.name");
  EXPECT_EQ(nearest("something_else", keys), "");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(CheckActing, AKeyOutOfActionDecidesAboutNoOther) {
  Colour mode = Colour::Red;
  Colour inner = Colour::Red;
  double value = 0.5;
  const Names<Colour> colours{{"red", Colour::Red}, {"green", Colour::Green}};
  OptionSet options;
  // The last of the chain stands first.
  options.add("a.value", value, at_least(0.0), "A number").acts(where("a.inner", {"red"}));
  options.add("a.inner", inner, colours, "A colour").acts(where("a.mode", {"green"}));
  options.add("a.mode", mode, colours, "Another");
  options.assign("a.value", "3", {Level::File, "x.ini:1"});
  options.assign("a.inner", "green", {Level::File, "x.ini:2"});
  options.assign("a.mode", "red", {Level::CommandLine, "command line"});
  const std::vector<std::string> notes = options.check_acting();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("'a.inner' = 'green' has no effect with a.mode = red"), std::string::npos)
      << notes[0];
  EXPECT_EQ(inner, Colour::Red);
  EXPECT_EQ(value, 3) << "a.inner is red after all";
}

TEST(CheckActing, TwoThatPutEachOtherOutOfActionAreRefused) {
  Colour one = Colour::Red;
  Colour other = Colour::Red;
  const Names<Colour> colours{{"red", Colour::Red}, {"green", Colour::Green}};
  OptionSet options;
  options.add("a.one", one, colours, "A colour").acts(where("a.other", {"red"}));
  options.add("a.other", other, colours, "Another").acts(where("a.one", {"red"}));
  options.assign("a.one", "green", {Level::File, "x.ini:1"});
  options.assign("a.other", "green", {Level::CommandLine, "command line"});
  EXPECT_THROW(options.check_acting(), ConfigError) << "the one of the higher level has no excuse";
}

TEST(OptionSet, RefusesWhatCannotBeDeclared) {
  const auto refusal = [](const std::string& key, double value) {
    OptionSet options;
    double other = 0.5;
    options.add("one.rate", other, between(0.0, 1.0), "A rate");
    try {
      options.add(key, value, between(0.6, 0.9), "Another");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("declared");
  };
  EXPECT_EQ(refusal("one.rate2", 0.6), "declared");
  EXPECT_EQ(refusal("one.rate2", 0.1),
            "key 'one.rate2' cannot be declared: its default 0.1 is not allowed; allowed: a number "
            "of at least 0.6 and of at most 0.9");
  EXPECT_EQ(refusal("one.rate", 0.7),
            "key 'one.rate' cannot be declared: there is a key of this name");
}

}  // namespace
}  // namespace fedhpc
