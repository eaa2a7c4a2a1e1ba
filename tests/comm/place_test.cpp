#include "fedhpc/comm/place.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

using Task = Place::Task;

TEST(Place, ReadsAsAPartOfASentence) {
  EXPECT_EQ(text({}), "starting");
  EXPECT_EQ(text({.task = Task::Round}), "before the first round");
  EXPECT_EQ(text({.task = Task::Round, .round = 3}), "in round 3");
  EXPECT_EQ(text({.task = Task::Training, .clients = 1, .round = 17, .client = 41}),
            "training client 41 in round 17");
  EXPECT_EQ(text({.task = Task::Training, .clients = 16, .round = 17, .client = 41}),
            "training client 41 and 15 more in round 17");
  EXPECT_EQ(text({.task = Task::Moving, .round = 17}), "moving clients between ranks in round 17");
  EXPECT_EQ(text({.task = Task::Mean, .round = 17}), "taking a mean in round 17");
  EXPECT_EQ(text({.task = Task::Checkpoint, .round = 2}), "writing a checkpoint in round 2");
}

TEST(AtTask, GivesTheLastTaskBack) {
  Place place{.task = Task::Round, .round = 3};
  {
    const AtTask mean(place, Task::Mean);
    EXPECT_EQ(text(place), "taking a mean in round 3");
  }
  EXPECT_EQ(text(place), "in round 3");
}

TEST(AtTask, AnErrorLeavesThePlaceWhereItCameFrom) {
  Place place{.task = Task::Round, .round = 3};
  try {
    const AtTask mean(place, Task::Mean);
    throw std::runtime_error("lost");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(text(place), "taking a mean in round 3");
}

}  // namespace
}  // namespace fedhpc
