#include <utility>

#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi_communicator.hpp"

namespace fedhpc {
namespace {

int freed = 0;

int count_free(MPI_Comm, int, void*, void*) {
  ++freed;
  return MPI_SUCCESS;
}

/// A duplicate whose release is counted: MPI deletes its attributes when it is freed.
MPI_Comm watched() {
  static int key = MPI_KEYVAL_INVALID;
  if (key == MPI_KEYVAL_INVALID) {
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count_free, &key, nullptr);
  }
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  MPI_Comm_set_attr(comm, key, nullptr);
  return comm;
}

TEST(CommHandle, FreesOnce) {
  freed = 0;
  { const CommHandle handle(watched()); }
  EXPECT_EQ(freed, 1);
}

TEST(CommHandle, MoveLeavesNull) {
  freed = 0;
  {
    CommHandle first(watched());
    const MPI_Comm comm = first.handle();
    CommHandle second(std::move(first));
    EXPECT_EQ(first.handle(), MPI_COMM_NULL);  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_EQ(second.handle(), comm);
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
}

TEST(CommHandle, AssignmentFreesWhatItReplaces) {
  freed = 0;
  {
    CommHandle first(watched());
    CommHandle second(watched());
    second = std::move(first);
    EXPECT_EQ(freed, 1);
    CommHandle& same = second;
    second = std::move(same);
    EXPECT_NE(second.handle(), MPI_COMM_NULL);
    EXPECT_EQ(freed, 1);
  }
  EXPECT_EQ(freed, 2);
}

}  // namespace
}  // namespace fedhpc
