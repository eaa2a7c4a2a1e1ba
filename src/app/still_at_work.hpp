#pragma once

#include <string>
#include <thread>

namespace fedhpc {

/// Notes in the log that work goes on, after 10 s of it and each time it has taken twice as
/// long as before, to the end of its life.
class StillAtWork {
 public:
  explicit StillAtWork(std::string work);

 private:
  std::jthread speaker_;
};

}  // namespace fedhpc
