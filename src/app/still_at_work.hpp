#pragma once

#include <string>
#include <thread>

namespace fedhpc {

/// Says on standard error that work goes on, until it is destroyed. The first time is after 10 s,
/// each later one after twice as long as before.
class StillAtWork {
 public:
  explicit StillAtWork(std::string work);

 private:
  std::jthread speaker_;
};

}  // namespace fedhpc
