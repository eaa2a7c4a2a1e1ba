#include "support/turns.hpp"

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

namespace fedhpc::testing {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<int> numbers_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<int> numbers;
  for (int number = 0; words >> number;) numbers.push_back(number);
  if (numbers.empty() || !words.eof()) {
    throw std::invalid_argument("FEDHPC_TEST_TURNS lists no numbers of ranks: " + text);
  }
  return numbers;
}

bool speaks_of_ranks(const std::string& test) { return test.find("Ranks") != std::string::npos; }

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a: the same on every machine
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return hash;
}

/// One of `of` names.
bool is_drawn(const std::string& name, unsigned of) { return (hash_of(name) >> 32) % of == 0; }

std::vector<int> of_several(std::vector<int> turns) {
  std::erase_if(turns, [](int ranks) { return ranks < 2; });
  return turns;
}

}  // namespace

int turn_of(const std::string& test, std::vector<int> turns) {
  if (speaks_of_ranks(test)) turns = of_several(turns);
  if (turns.empty()) return 1;
  return turns[hash_of(test) % turns.size()];
}

bool takes_case(const std::string& name, int of) {
  if (environment("FEDHPC_TESTS") != "short") return true;
  return is_drawn(name, static_cast<unsigned>(of));
}

void take_turns(int ranks) {
  const std::string listed = environment("FEDHPC_TEST_TURNS");
  const std::string suite = environment("FEDHPC_TESTS");
  const bool whole = suite == "all";
  if (listed.empty() || (suite != "short" && !whole)) return;
  if (GTEST_FLAG_GET(filter) != "*") return;
  std::vector<int> turns = numbers_of(listed);
  if (whole) turns = of_several(turns);
  std::string filter;
  const ::testing::UnitTest& program = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < program.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& tests = *program.GetTestSuite(s);
    for (int t = 0; t < tests.total_test_count(); ++t) {
      const std::string name = std::string(tests.name()) + "." + tests.GetTestInfo(t)->name();
      const bool on_one = whole && !speaks_of_ranks(name);
      const bool on_several = !on_one || is_drawn(name, 2);
      if ((on_one && ranks == 1) || (on_several && turn_of(name, turns) == ranks)) {
        filter += name + ":";
      }
    }
  }
  GTEST_FLAG_SET(filter, filter);
}

}  // namespace fedhpc::testing
