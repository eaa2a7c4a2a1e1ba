#include "support/mpi_listener.hpp"

#include <cstdio>
#include <utility>

namespace fedhpc::testing {
namespace {

constexpr int kFailed = 1;
constexpr int kAllSkipped = 77;

// Appends the failures of `result` from part `begin` on, and moves `begin` behind the last part.
void take(const ::testing::TestResult& result, int& begin, std::vector<Failure>& failures) {
  for (; begin < result.total_part_count(); ++begin) {
    const ::testing::TestPartResult& part = result.GetTestPartResult(begin);
    if (part.failed()) {
      const char* file = part.file_name();
      failures.push_back({file == nullptr ? "" : file, part.line_number(),
                          part.fatally_failed() ? Severity::Fatal : Severity::NonFatal,
                          part.message()});
    }
  }
}

std::string skip_reason(const ::testing::TestResult& result) {
  for (int i = 0; i < result.total_part_count(); ++i) {
    const ::testing::TestPartResult& part = result.GetTestPartResult(i);
    if (part.skipped()) {
      return part.message();
    }
  }
  return "";
}

std::string name_of(int rank, std::size_t size) {
  return "[rank " + std::to_string(rank) + " of " + std::to_string(size) + "] ";
}

void raise(const Failure& failure, const std::string& prefix) {
  const char* file = failure.file.c_str();
  if (failure.severity == Severity::Fatal) {
    GTEST_FAIL_AT(file, failure.line) << prefix << failure.text;
  } else {
    ADD_FAILURE_AT(file, failure.line) << prefix << failure.text;
  }
}

// Fatal, so that a skip in the set-up of only some ranks keeps all of them from running the tests.
void raise_partial_skip(const std::vector<RankReport>& reports) {
  std::string text = "skipped on some ranks only; a skip has to hold on all of them";
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    text += '\n';
    text += name_of(static_cast<int>(rank), reports.size());
    text += reports[rank].skipped ? reports[rank].skip_reason : "not skipped";
  }
  GTEST_FAIL_AT("", -1) << text;
}

}  // namespace

void MpiListener::OnTestIterationStart(const ::testing::UnitTest& /*unit_test*/,
                                       int /*iteration*/) {
  program_parts_ = 0;
}

void MpiListener::OnEnvironmentsSetUpEnd(const ::testing::UnitTest& unit_test) {
  meet("the end of the set-up of the environments", unit_test.ad_hoc_test_result());
}

void MpiListener::OnTestSuiteStart(const ::testing::TestSuite& /*suite*/) { suite_parts_ = 0; }

void MpiListener::OnTestStart(const ::testing::TestInfo& /*test*/) { test_parts_ = 0; }

void MpiListener::OnTestEnd(const ::testing::TestInfo& test) {
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  if (meet("the end of test " + name, *test.result()) == Verdict::NotSkipped) {
    ++num_not_skipped_;
  }
}

void MpiListener::OnTestSuiteEnd(const ::testing::TestSuite& suite) {
  meet("the end of suite " + std::string(suite.name()), suite.ad_hoc_test_result());
}

void MpiListener::OnEnvironmentsTearDownEnd(const ::testing::UnitTest& unit_test) {
  meet("the end of the tear-down of the environments", unit_test.ad_hoc_test_result());
}

int MpiListener::agree_exit_code(int run_all_tests) {
  watchdog_.meet({"the end of the program", false, "", {}});

  const bool none = ::testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  if (none && watchdog_.rank() == 0) {
    std::fprintf(stderr, "[harness] no test was run: --gtest_filter=%s matches none\n",
                 GTEST_FLAG_GET(filter).c_str());
  }
  // 77 is larger than 1, so the two answers are agreed on before they become a code.
  const int failed = watchdog_.max_over_ranks(run_all_tests != 0 || none ? 1 : 0);
  const int any_run = watchdog_.max_over_ranks(num_not_skipped_ > 0 ? 1 : 0);
  if (failed != 0) {
    return kFailed;
  }
  return any_run != 0 ? 0 : kAllSkipped;
}

MpiListener::Verdict MpiListener::meet(const std::string& place,
                                       const ::testing::TestResult& result) {
  const bool skipped = result.Skipped();
  const auto reports =
      watchdog_.meet({place, skipped, skipped ? skip_reason(result) : "", take_failures()});

  std::size_t num_skipped = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    num_skipped += reports[rank].skipped ? 1 : 0;
    if (static_cast<int>(rank) != watchdog_.rank()) {
      for (const Failure& failure : reports[rank].failures) {
        raise(failure, name_of(static_cast<int>(rank), reports.size()));
      }
    }
  }
  if (num_skipped != 0 && num_skipped != reports.size()) {
    raise_partial_skip(reports);
  }
  take_failures();  // the raised ones are known to all
  return num_skipped == reports.size() ? Verdict::Skipped : Verdict::NotSkipped;
}

// Failures since the last meeting point: those of a suite's or an environment's set-up are not part
// of the result of a test.
std::vector<Failure> MpiListener::take_failures() {
  const ::testing::UnitTest& unit_test = *::testing::UnitTest::GetInstance();
  std::vector<Failure> failures;
  take(unit_test.ad_hoc_test_result(), program_parts_, failures);
  if (const auto* suite = unit_test.current_test_suite()) {
    take(suite->ad_hoc_test_result(), suite_parts_, failures);
  }
  if (const auto* test = unit_test.current_test_info()) {
    take(*test->result(), test_parts_, failures);
  }
  return failures;
}

}  // namespace fedhpc::testing
