#include "fedhpc/core/log.hpp"

#include <array>
#include <fcntl.h>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    EXPECT_EQ(fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
    log.emplace(ends_[1]);
    log->set_rank(0, "node5");
  }
  ~LogTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }

  /// What was written since the last call.
  std::string written() const {
    std::string text(1 << 16, '\0');
    const ssize_t size = read(ends_[0], text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

  std::optional<Log> log;

 private:
  std::array<int, 2> ends_{};
};

TEST_F(LogTest, ALineNamesItsLevel) {
  log->of_run(LogLevel::Error, "this cannot be");
  log->of_run(LogLevel::Warning, "this may end badly");
  log->of_run(LogLevel::Note, "this is so");
  EXPECT_EQ(written(),
            "fedhpc: error: this cannot be\nfedhpc: warning: this may end badly\n"
            "fedhpc: note: this is so\n");
}

TEST_F(LogTest, ShowsNotesUntilItIsTold) {
  log->of_run(LogLevel::Debug, "a detail");
  log->of_rank(LogLevel::Debug, "a detail");
  EXPECT_EQ(written(), "");
  log->show(LogLevel::Debug);
  log->of_run(LogLevel::Debug, "a detail");
  EXPECT_EQ(written(), "fedhpc: debug: a detail\n");
  log->show(LogLevel::Error);
  EXPECT_FALSE(log->shows(LogLevel::Warning));
  log->of_run(LogLevel::Warning, "this may end badly");
  log->of_rank(LogLevel::Error, "this cannot be");
  EXPECT_EQ(written(), "fedhpc: error: rank 0 on node5: this cannot be\n");
}

TEST_F(LogTest, RankZeroSpeaksForAll) {
  log->set_rank(3, "node7");
  log->of_run(LogLevel::Warning, "all ranks see this");
  EXPECT_EQ(written(), "");
  log->of_rank(LogLevel::Warning, "only this one sees it");
  EXPECT_EQ(written(), "fedhpc: warning: rank 3 on node7: only this one sees it\n");
}

TEST_F(LogTest, ARankSaysWhereItIs) {
  std::string place = "fedavg, in round 1";
  {
    const Log::Where where(*log, [&] { return place; });
    place = "fedavg, training client 41 in round 17";
    log->of_rank(LogLevel::Warning, "no memory");
    log->of_run(LogLevel::Note, "this is so");
  }
  log->of_rank(LogLevel::Error, "lost");
  EXPECT_EQ(written(),
            "fedhpc: warning: rank 0 on node5: fedavg, training client 41 in round 17: no memory\n"
            "fedhpc: note: this is so\nfedhpc: error: rank 0 on node5: lost\n");
}

TEST_F(LogTest, AnEventIsOneLine) {
  log->of_run(LogLevel::Error, "value 'a\nb\tc' of\r\nkey");
  EXPECT_EQ(written(), "fedhpc: error: value 'a b c' of  key\n");
}

TEST_F(LogTest, NothingFoundIsNothingSaid) {
  log->of_run(LogLevel::Warning, "");
  EXPECT_EQ(written(), "");
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  constexpr int kLines = 20;
  const std::string sentence(100, 'x');
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kLines; ++i) log->of_run(LogLevel::Note, sentence);
      });
    }
  }
  std::string expected;
  for (int i = 0; i < 4 * kLines; ++i) expected += "fedhpc: note: " + sentence + "\n";
  EXPECT_EQ(written(), expected);
}

TEST(Log, OfAFileThatNobodyReadsIsLost) {
  Log log(-1);
  log.of_run(LogLevel::Error, "lost");
}

TEST(Log, OfAProcessIsOne) { EXPECT_EQ(&run_log(), &run_log()); }

}  // namespace
}  // namespace fedhpc
