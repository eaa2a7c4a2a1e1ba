#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

enum class LogLevel { Error, Warning, Note, Debug };

/// What a process tells the user on standard error: `fedhpc: warning: the run diverges ...`. Every
/// event is one line and one write, so that lines of ranks never mix. Only sentences up to
/// run.log_level are shown.
class Log {
 public:
  /// `file`: the descriptor that lines are written to.
  explicit Log(int file) : file_(file) {}

  /// From now on shows sentences of this level and those above it; before, up to notes.
  void show(LogLevel most) { most_ = most; }
  bool shows(LogLevel level) const { return level <= most_; }
  /// Who writes here: rank 0 of no host until this is called, before there are other threads.
  void set_rank(int rank, std::string host);
  int rank() const { return rank_; }

  /// An event of the whole run: rank 0 writes it, the others nothing. Nothing for an empty
  /// sentence, which is what functions that look for trouble give where they find none.
  void of_run(LogLevel level, const std::string& sentence) const;
  /// A detail of the whole run; its sentence is put together only where it is shown.
  template <typename... Parts>
  void debug(const Parts&... parts) const {
    if (shows(LogLevel::Debug)) of_run(LogLevel::Debug, concat(parts...));
  }
  /// An event of this rank: "rank 3 on node7: fedavg, training client 41 in round 17: SENTENCE".
  void of_rank(LogLevel level, const std::string& sentence) const;

  /// While it lives, what a rank says begins with the text that `where` gives then.
  class Where {
   public:
    Where(Log& log, std::function<std::string()> where) : log_(log) {
      log_.where_ = std::move(where);
    }
    ~Where() { log_.where_ = nullptr; }
    Where(const Where&) = delete;
    Where& operator=(const Where&) = delete;

   private:
    Log& log_;
  };

 private:
  void write(LogLevel level, const std::string& sentence) const;

  int file_;
  std::atomic<LogLevel> most_ = LogLevel::Note;
  int rank_ = 0;
  std::string host_;
  std::function<std::string()> where_;
};

/// The log of this process. There is one, as there is one standard error: who finds something to
/// tell may be a local step, a watchdog's thread before MPI has started, or main.
Log& run_log();

}  // namespace fedhpc
