#include <gtest/gtest.h>

#include "fedhpc/core/options.hpp"

namespace fedhpc {
namespace {

const std::vector<std::string> kKeys = {"run.rounds", "train.block", "train.batch_size", "train.lr",
                                        "model.hidden"};

TEST(LikelyKey, SlipsBeginningsAndOtherSections) {
  const std::vector<std::pair<std::string, std::string>> meant = {
      {"run.ronuds", "run.rounds"},         // a slip
      {"train.batch", "train.batch_size"},  // begun; by letters alone train.block is nearer
      {"rounds", "run.rounds"},             // no section
      {"data.hidden", "model.hidden"},      // another section
      {"modell.hidden", "model.hidden"},    // a slip in the section
      {"train.rl", "train.lr"},             // nearest of all
      {"something.else", ""},
      {"", ""},
  };
  for (const auto& [typed, key] : meant) EXPECT_EQ(likely_key(typed, kKeys), key) << typed;
  EXPECT_EQ(likely_key("x", {}), "");
}

TEST(LikelyKey, Suggestion) {
  EXPECT_EQ(suggestion("a.b"), "; did you mean 'a.b'?");
  EXPECT_EQ(suggestion(""), "");
  EXPECT_EQ(suggestion("", "; see help"), "; see help");
}

}  // namespace
}  // namespace fedhpc
