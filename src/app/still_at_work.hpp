#pragma once

#include <string>
#include <thread>

namespace fedhpc {

/// Says on standard error that work goes on: after 10 s, then each time it has taken twice as long
/// as before, until it is destroyed.
class StillAtWork {
 public:
  explicit StillAtWork(std::string work);

 private:
  std::jthread speaker_;
};

}  // namespace fedhpc
