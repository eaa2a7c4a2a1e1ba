#pragma once

#include <cstdint>
#include <string>

namespace fedhpc {

/// The place of a rank in its work. Messages on a hang or an error name it.
struct Place {
  enum class Task : std::int32_t {
    Start,
    Round,
    Training,
    Moving,
    Mean,
    Evaluation,
    Report,
    Checkpoint
  };

  Task task = Task::Start;
  std::int32_t clients = 0;  ///< trained together
  std::int64_t round = 0;    ///< 0: before the first
  std::int64_t client = 0;   ///< the first of those trained together

  bool operator==(const Place&) const = default;
};

/// "training client 41 and 15 more in round 17".
std::string text(const Place& place);

/// Sets the task of a place and restores the last one at its end. After an exception the place
/// stays where the exception was thrown.
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
