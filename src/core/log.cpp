#include "fedhpc/core/log.hpp"

#include <cerrno>
#include <unistd.h>

namespace fedhpc {

namespace {

const char* name(LogLevel level) {
  switch (level) {
    case LogLevel::Error:
      return "error";
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Note:
      return "note";
    case LogLevel::Debug:
      return "debug";
  }
  return "";
}

}  // namespace

void Log::set_rank(int rank, std::string host) {
  rank_ = rank;
  host_ = std::move(host);
}

void Log::of_run(LogLevel level, const std::string& sentence) const {
  if (rank_ == 0 && !sentence.empty()) write(level, sentence);
}

void Log::of_rank(LogLevel level, const std::string& sentence) const {
  if (!shows(level)) return;
  const std::string place = where_ ? where_() + ": " : "";
  write(level, concat("rank ", rank_, " on ", host_, ": ", place, sentence));
}

void Log::write(LogLevel level, const std::string& sentence) const {
  if (!shows(level)) return;
  const std::string line = one_line(concat("fedhpc: ", name(level), ": ", sentence)) + '\n';
  const char* next = line.data();
  const char* const end = next + line.size();
  while (next < end) {
    const ssize_t written = ::write(file_, next, static_cast<std::size_t>(end - next));
    if (written > 0) next += written;
    if (written < 0 && errno != EINTR) return;  // nobody reads: there is no other place to say so
  }
}

Log& run_log() {
  static Log log(STDERR_FILENO);
  return log;
}

}  // namespace fedhpc
