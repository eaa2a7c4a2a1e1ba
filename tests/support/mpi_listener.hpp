#pragma once

#include <string>

#include <gtest/gtest.h>

#include "support/watchdog.hpp"

namespace fedhpc::testing {

// Makes a test one event of all ranks: at its end the ranks meet, and each of them raises the
// failures of the others as its own, with the prefix "[rank r of n]".
//
// Every rank, not only rank 0, so that all of them hold the same verdict on each test: then flags
// such as --gtest_fail_fast, and a failed set-up, steer all ranks the same way. Only rank 0 prints.
// A skip has to hold on all ranks; otherwise the test fails, because it was run in part.
//
// Does not handle OnTestPartResult: GoogleTest forbids that to a listener that raises failures.
class MpiListener : public ::testing::EmptyTestEventListener {
 public:
  explicit MpiListener(Watchdog& watchdog) : watchdog_(watchdog) {}

  void OnTestIterationStart(const ::testing::UnitTest& unit_test, int iteration) override;
  void OnEnvironmentsSetUpEnd(const ::testing::UnitTest& unit_test) override;
  void OnTestSuiteStart(const ::testing::TestSuite& suite) override;
  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;
  void OnTestSuiteEnd(const ::testing::TestSuite& suite) override;
  void OnEnvironmentsTearDownEnd(const ::testing::UnitTest& unit_test) override;

  // The exit code, the same on all ranks: 1 if a test failed or none was run, 77 (which CTest
  // counts as skipped) if all were skipped, else 0. `run_all_tests` is what RUN_ALL_TESTS returned.
  int agree_exit_code(int run_all_tests);

 private:
  enum class Verdict { Skipped, NotSkipped };

  Verdict meet(const std::string& place, const ::testing::TestResult& result);
  std::vector<Failure> take_failures();

  Watchdog& watchdog_;
  // How many results of the program, of the current suite and of the current test are known to all.
  int program_parts_ = 0;
  int suite_parts_ = 0;
  int test_parts_ = 0;
  int num_not_skipped_ = 0;
};

}  // namespace fedhpc::testing
