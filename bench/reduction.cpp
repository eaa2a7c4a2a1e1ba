#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <mpi.h>

#include "fedhpc/comm/session.hpp"

// Whole-run driver, under mpirun: Communicator::sum_ of float64 against a bare MPI_Iallreduce and
// MPI_Wait on the same buffer, taking turns. Usage: mpirun -n 2 reduction [repetitions]

namespace {

using fedhpc::Tensor;

template <typename Work>
double microseconds(Work&& work) {
  using Clock = std::chrono::steady_clock;
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Clock::now();
  work();
  double elapsed = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  // The slowest rank counts.
  MPI_Allreduce(MPI_IN_PLACE, &elapsed, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return elapsed;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void compare(fedhpc::Communicator& comm, std::int64_t bytes, int repetitions) {
  Tensor values = at::zeros({bytes / 8}, at::kDouble);
  const auto sum = [&] { comm.sum_(values); };
  const auto bare = [&] {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, values.data_ptr(), static_cast<int>(values.numel()), MPI_DOUBLE,
                   MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  sum();
  bare();
  std::vector<double> ours;
  std::vector<double> theirs;
  std::vector<double> ratios;
  for (int r = 0; r < repetitions; ++r) {
    ours.push_back(microseconds(sum));
    theirs.push_back(microseconds(bare));
    ratios.push_back(ours.back() / theirs.back());
  }
  if (comm.rank() != 0) return;
  std::printf("%12lld %12.1f %12.1f %10.2f %18.2f\n", static_cast<long long>(bytes), median(ours),
              median(theirs), median(ratios),
              *std::min_element(ours.begin(), ours.end()) /
                  *std::min_element(theirs.begin(), theirs.end()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const fedhpc::Session session(&argc, &argv, fedhpc::UseMpi::On);
  at::set_num_threads(1);
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 201;
  const auto comm = fedhpc::world_communicator(/*timeout_seconds=*/60);
  if (comm->rank() == 0) {
    std::printf("%12s %12s %12s %10s %18s\n", "bytes", "sum_ us", "bare us", "ratio",
                "ratio of fastest");
  }
  for (const std::int64_t bytes :
       {std::int64_t{8} << 10, std::int64_t{256} << 10, std::int64_t{4} << 20}) {
    compare(*comm, bytes, repetitions);
  }
  return 0;
}
