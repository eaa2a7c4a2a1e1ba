#pragma once

#include <string>
#include <thread>

namespace fedhpc {

/// Says on standard error that work goes on, after 10 s of it and each time it has taken twice as
/// long as before, to the end of its life; and once, that a signal to stop has been heard.
class StillAtWork {
 public:
  explicit StillAtWork(std::string work);

 private:
  std::jthread speaker_;
};

}  // namespace fedhpc
