#include "comm/mpi_support.hpp"

#include <limits>
#include <string>

namespace fedhpc {

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(concat(what, " failed: ", std::string(text, static_cast<std::size_t>(length))));
}

void check_mpi(int status, Call what) { check_mpi(status, name(what)); }

MPI_Datatype datatype(const Tensor& values) {
  require(values.is_contiguous() && values.is_cpu(), "a collective takes contiguous CPU tensors");
  switch (values.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    default:
      break;
  }
  require(false, "a collective takes float32, float64 or int64");
  return MPI_DATATYPE_NULL;
}

int to_count(std::int64_t n) {
  require(n <= std::numeric_limits<int>::max(), "one MPI message holds fewer than 2^31 values");
  return static_cast<int>(n);
}

void CommHandle::reset() noexcept {
  if (comm_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

}  // namespace fedhpc
