// What a configuration means whose keys come from a file and from those it starts from.

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/config.hpp"

#include "fixtures/temporary_folder.hpp"

namespace fedhpc {
namespace {

namespace fs = std::filesystem;

Assignment on_command_line(const std::string& key, const std::string& value) {
  return {key, value, {Level::CommandLine, "command line"}};
}

class ConfigBasesTest : public testing::Test {
 protected:
  ConfigBasesTest() { fs::create_directories(folder_.path("bases")); }

  void base(const std::string& text) { std::ofstream(folder_.path("bases/all.ini")) << text; }
  /// A configuration that starts from base().
  std::unique_ptr<Config> config(const std::string& text, std::vector<Assignment> more = {}) {
    std::ofstream(folder_.path("run.ini")) << "base = bases/all.ini\n" << text;
    std::vector<Assignment> lines = read_ini(folder_.path("run.ini"));
    lines.insert(lines.end(), more.begin(), more.end());
    return std::make_unique<Config>(lines, folder_.path("run.ini"));
  }
  std::string refusal(const std::string& text, const std::vector<Assignment>& more = {}) {
    try {
      config(text, more);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  std::string place(int line) const { return concat(folder_.path("bases/all.ini"), ':', line); }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(ConfigBasesTest, TheFileWinsAsTheCommandLineDoes) {
  base("[train]\nlocal_epochs = 3\nlr = 0.5\n[run]\nrounds = 7\n");
  const auto plain = config("[run]\nseed = 4\n");
  EXPECT_EQ(plain->train.local_epochs, 3);
  EXPECT_EQ(plain->options().origin("train.lr").place, place(3));
  // The one of two rivals that stands nearer counts.
  const auto steps = config("[train]\nlocal_steps = 5\nlr = 0.25\n");
  EXPECT_EQ(steps->train.local_steps, 5);
  EXPECT_EQ(steps->train.local_epochs, 0);
  EXPECT_EQ(steps->train.lr, 0.25);
  EXPECT_EQ(config("[train]\nlr = 0.25\n", {on_command_line("train.lr", "2")})->train.lr, 2);
  EXPECT_NE(refusal("[train]\nlocal_steps = 5\nlocal_epochs = 1\n").find("cannot both count"),
            std::string::npos);
}

TEST_F(ConfigBasesTest, WhatIsWrongInABaseIsNamedWhereItStands) {
  base("[run]\nronuds = 5\n");
  EXPECT_NE(refusal("").find(place(2) + ": unknown key 'run.ronuds'"), std::string::npos);
  base("[train]\nlr = fast\n");
  EXPECT_NE(refusal("[train]\nlr = 0.5\n").find(place(2) + ": key 'train.lr' cannot be 'fast'"),
            std::string::npos);
  base("[algorithm]\nname = fedavg\nmu = 0.5\n");
  EXPECT_NE(refusal("").find(place(3) + ": unknown key 'algorithm.mu'"), std::string::npos);
  base("[data]\nalpha = 0.5\n");
  EXPECT_NE(refusal("").find(place(2) + ": key 'data.alpha' = '0.5' has no effect"),
            std::string::npos);
}

TEST_F(ConfigBasesTest, AKeyOfABaseThatTheFilePutsOutOfActionIsNoted) {
  base("[data]\npartition = dirichlet\nalpha = 0.5\n");
  const auto iid = config("[data]\npartition = iid\n");
  ASSERT_EQ(iid->notes().size(), 1U);
  EXPECT_NE(iid->notes().front().find(place(3) + ": key 'data.alpha'"), std::string::npos);
  EXPECT_EQ(iid->to_ini().find("alpha"), std::string::npos);
}

TEST_F(ConfigBasesTest, PlainKeysOfABaseAreOfTheMethodThatItNames) {
  base("[algorithm]\nname = ditto\nmu = 0.5\nweighting = uniform\n");
  EXPECT_NE(config("")->to_ini().find("mu = 0.5"), std::string::npos);
  const auto prox = config("[algorithm]\nname = fedprox\n");
  EXPECT_EQ(prox->to_ini().find("mu = 0.5"), std::string::npos);
  EXPECT_NE(prox->to_ini().find("weighting = uniform"), std::string::npos);
  ASSERT_EQ(prox->notes().size(), 1U);
  EXPECT_NE(prox->notes().front().find("bases/all.ini' is for algorithm.name = ditto; with fedprox "
                                       "these keys of it are left out: algorithm.mu"),
            std::string::npos)
      << prox->notes().front();
  // The method of the base, chosen again, has its keys again; those of the file are left out.
  const auto ditto = config("[algorithm]\nname = fedprox\nmu = 0.25\n",
                            {on_command_line("algorithm.name", "ditto")});
  EXPECT_NE(ditto->to_ini().find("mu = 0.5"), std::string::npos);
  ASSERT_EQ(ditto->notes().size(), 1U);
  EXPECT_NE(ditto->notes().front().find("the configuration is for algorithm.name = fedprox"),
            std::string::npos);
}

TEST_F(ConfigBasesTest, ABaseThatNamesNoMethodHasKeysOfTheFilesMethod) {
  base("[algorithm]\nmu = 0.5\n");
  EXPECT_NE(config("[algorithm]\nname = fedprox\n")->to_ini().find("mu = 0.5"), std::string::npos);
  EXPECT_NE(refusal("[algorithm]\nname = fedavg\n").find(place(2)), std::string::npos);
  EXPECT_EQ(config("[algorithm]\nname = fedprox\n", {on_command_line("algorithm.name", "fedavg")})
                ->notes()
                .size(),
            1U);
}

TEST_F(ConfigBasesTest, SectionsOfMethodsAreBelowThePlainKeysOfTheFile) {
  base("[algorithm.fedprox]\nmu = 0.5\n[algorithm.ditto]\nmu = 0.125\n");
  const std::string prox = "[algorithm]\nname = fedprox\n";
  EXPECT_NE(config(prox)->to_ini().find("mu = 0.5"), std::string::npos);
  EXPECT_EQ(config(prox)->options().origin("algorithm.mu").place,
            place(2) + " (algorithm.fedprox.mu)");
  EXPECT_NE(config(prox + "mu = 0.25\n")->to_ini().find("mu = 0.25"), std::string::npos);
  const auto ditto = config(prox + "mu = 0.25\n", {on_command_line("algorithm.name", "ditto")});
  EXPECT_NE(ditto->to_ini().find("mu = 0.125"), std::string::npos) << ditto->to_ini();
  EXPECT_EQ(config("[algorithm]\nname = fedavg\n")->notes().size(), 0U);
}

TEST_F(ConfigBasesTest, APathOfABaseMayLeadBesideTheBase) {
  std::ofstream(folder_.path("bases/people.csv")) << "1,2\n";
  base("[data]\nname = csv\nfile = people.csv\n");
  EXPECT_EQ(config("")->data.file, folder_.path("bases/people.csv"));
  const std::string elsewhere = config("[data]\nfile = people.csv\n")->data.file;
  EXPECT_EQ(elsewhere, "people.csv") << "beside the file, where none is";
  try {
    base("[data]\nname = csv\nfile = none.csv\n");
    config("")->check_files();
    FAIL();
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(place(3)), std::string::npos) << message;
    EXPECT_NE(message.find(folder_.path("bases/none.csv")), std::string::npos) << message;
  }
}

TEST_F(ConfigBasesTest, WhatIsStoredNeedsNoBase) {
  base("[train]\nlr = 0.5\n[algorithm.fedprox]\nmu = 0.5\n");
  const auto first = config("[algorithm]\nname = fedprox\n");
  fs::remove(folder_.path("bases/all.ini"));
  const Config second(parse_ini(first->to_ini(), "config"), "other.ini");
  EXPECT_EQ(second.to_ini(), first->to_ini());
}

}  // namespace
}  // namespace fedhpc
