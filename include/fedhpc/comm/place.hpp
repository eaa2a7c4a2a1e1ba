#pragma once

#include <cstdint>
#include <string>

namespace fedhpc {

/// Where a rank is in its work, for what a hang or an error says of it.
struct Place {
  enum class Task : std::int32_t { Start, Round, Training, Mean, Evaluation, Report, Checkpoint };

  Task task = Task::Start;
  std::int32_t clients = 0;  ///< in hand, of a training
  std::int64_t round = 0;    ///< 0: before the first
  std::int64_t client = 0;   ///< the first of those in hand

  bool operator==(const Place&) const = default;
};

/// "training client 41 and 15 more in round 17".
std::string text(const Place& place);

/// Sets the task of a place and gives the last one back at the end; an exception leaves it where it
/// came from.
class AtTask {
 public:
  AtTask(Place& place, Place::Task task);
  ~AtTask();
  AtTask(const AtTask&) = delete;
  AtTask& operator=(const AtTask&) = delete;

 private:
  Place& place_;
  Place before_;
  int uncaught_;
};

}  // namespace fedhpc
