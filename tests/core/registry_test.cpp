#include "fedhpc/core/registry.hpp"

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

int one() { return 1; }
int two() { return 2; }

const Registry<int()> kNumbers({{"first", "the number 1", one}, {"second", "the number 2", two}});

std::string refusal(const std::string& name, const std::string& place) {
  try {
    kNumbers.find(name, "test.number", place);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RegistryTest, KeepsTheOrderOfItsTable) {
  EXPECT_EQ(kNumbers.size(), 2U);
  EXPECT_EQ(kNumbers.names(), (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(kNumbers.listing().back(),
            (std::pair<std::string, std::string>{"second", "the number 2"}));
  EXPECT_EQ(kNumbers.begin()->make(), 1);
}

TEST(RegistryTest, FindsWhatMakesAName) {
  EXPECT_EQ(kNumbers.find("first", "test.number")(), 1);
  EXPECT_EQ(kNumbers.find("second", "test.number")(), 2);
}

TEST(RegistryTest, RefusesAnUnknownNameWithThoseThereAre) {
  EXPECT_EQ(refusal("secnod", "run.ini:3"),
            "run.ini:3: key 'test.number' cannot be 'secnod'; allowed: one of: first, second; did "
            "you mean 'second'?");
  EXPECT_EQ(refusal("anything", ""),
            "key 'test.number' cannot be 'anything'; allowed: one of: first, second");
}

}  // namespace
}  // namespace fedhpc
