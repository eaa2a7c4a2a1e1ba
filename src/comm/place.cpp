#include "fedhpc/comm/place.hpp"

#include <exception>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::string text(const Place& place) {
  const std::string of_round =
      place.round == 0 ? "before the first round" : concat("in round ", place.round);
  switch (place.task) {
    case Place::Task::Start:
      return "starting";
    case Place::Task::Round:
      return of_round;
    case Place::Task::Training:
      return concat("training client ", place.client,
                    place.clients > 1 ? concat(" and ", place.clients - 1, " more") : "", " ",
                    of_round);
    case Place::Task::Moving:
      return concat("moving clients between ranks ", of_round);
    case Place::Task::Mean:
      return concat("taking a mean ", of_round);
    case Place::Task::Evaluation:
      return concat("evaluating ", of_round);
    case Place::Task::Report:
      return concat("reporting ", of_round);
    case Place::Task::Checkpoint:
      return concat("writing a checkpoint ", of_round);
  }
  return "";
}

AtTask::AtTask(Place& place, Place::Task task)
    : place_(place), before_(place), uncaught_(std::uncaught_exceptions()) {
  place_.task = task;
}

AtTask::~AtTask() {
  if (std::uncaught_exceptions() == uncaught_) place_ = before_;
}

}  // namespace fedhpc
