#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace fedhpc {

/// Ends this process, with one line on standard error and exit code 1, unless it is destroyed
/// within `seconds`. It guards calls of MPI that wait for other ranks for ever: the launcher then
/// ends those. The line names the call `what`.
class Deadline {
 public:
  Deadline(double seconds, const char* what);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable met_changed_;
  bool met_ = false;
  std::thread watch_;
};

/// Waits so that the messages of lower ranks, which may fail at the same time, come first: one is
/// enough. A rank that the launcher stops meanwhile leaves in silence.
void let_lower_ranks_speak(int rank);

}  // namespace fedhpc
