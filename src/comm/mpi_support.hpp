#pragma once

#include <cstdint>

#include <mpi.h>

#include "fedhpc/core/tensor.hpp"

#include "comm/call.hpp"

namespace fedhpc {

/// Throws Error with MPI's own text unless `status` is success.
void check_mpi(int status, const char* what);
void check_mpi(int status, Call what);

/// MPI's name of the type of a contiguous CPU tensor of float32, float64 or int64.
MPI_Datatype datatype(const Tensor& values);

/// Converts a count to MPI's type.
int to_count(std::int64_t n);

/// The most values per message: a larger tensor travels in pieces, since MPI counts are 32-bit.
constexpr std::int64_t kPiece = std::int64_t{1} << 30;

/// Owns an MPI_Comm made by a duplication or a split. A move leaves MPI_COMM_NULL.
class CommHandle {
 public:
  CommHandle() = default;
  explicit CommHandle(MPI_Comm comm) : comm_(comm) {}
  ~CommHandle() { reset(); }
  CommHandle(CommHandle&& other) noexcept : comm_(other.release()) {}
  CommHandle& operator=(CommHandle&& other) noexcept {
    if (this != &other) {
      reset();
      comm_ = other.release();
    }
    return *this;
  }
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;

  MPI_Comm handle() const { return comm_; }
  /// Leaves the communicator to the end of MPI: messages may still be on their way in it.
  void abandon() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm release() {
    const MPI_Comm comm = comm_;
    comm_ = MPI_COMM_NULL;
    return comm;
  }
  void reset() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace fedhpc
