#include "fedhpc/math/fused_lasso.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <ATen/Parallel.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include "timing.hpp"

// Whole-run driver: the exact fused lasso on one long row against a copy of the row, taking turns.
// Usage: fused_lasso [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

struct Case {
  const char* name;
  bool is_walk;
  at::ScalarType type;
  double gamma;
};

/// CPU time of one coordinate [ns]; short rows several times over.
template <typename Work>
double nanoseconds(std::int64_t count, std::int64_t times, Work&& work) {
  const double begin = cpu_seconds();
  for (std::int64_t i = 0; i < times; ++i) work();
  return 1e9 * (cpu_seconds() - begin) / static_cast<double>(count * times);
}

/// Prints a line and returns the exact method's time of a coordinate [ns].
double compare(const Case& which, std::int64_t count, int repetitions) {
  Tensor g = at::randn({1, count}, at::kDouble);
  if (which.is_walk) g = g.cumsum(1);
  g = g.to(which.type);
  const Tensor row = at::empty_like(g);
  const std::int64_t times = std::max<std::int64_t>(1, 300'000 / count);
  FusedLasso lasso;
  Series exact;
  Series copy;
  for (int r = -1; r < repetitions; ++r) {
    const auto copied = [&] { row.copy_(g); };
    const double one_copy = nanoseconds(count, times, copied);
    const double both = nanoseconds(count, times, [&] {
      row.copy_(g);
      lasso.prox_(row, which.gamma);
    });
    if (r < 0) continue;  // first calls allocate
    copy.values.push_back(one_copy);
    exact.values.push_back(both - one_copy);
  }
  std::printf("%-22s %7g %10lld %8.1f %8.2f %10.1f %9.2f\n", which.name, which.gamma,
              static_cast<long long>(count), exact.median_of(), copy.median_of(),
              1e3 / exact.median_of(), exact.over(copy));
  std::fflush(stdout);
  return exact.median_of();
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  at::set_num_threads(1);
  std::printf("%-22s %7s %10s %8s %8s %10s %9s\n", "row", "gamma", "n", "exact ns", "copy ns",
              "million/s", "/ copy");
  for (const Case& which : {Case{"noise, float64", false, at::kDouble, 0.1},
                            Case{"noise, float64", false, at::kDouble, 1},
                            Case{"noise, float64", false, at::kDouble, 10},
                            Case{"noise, float32", false, at::kFloat, 1},
                            Case{"random walk, float64", true, at::kDouble, 1},
                            Case{"random walk, float64", true, at::kDouble, 100}}) {
    const double at_short = compare(which, 100'000, repetitions);
    const double at_long = compare(which, 10'000'000, repetitions);
    std::printf("%-22s %7g   1e7 / 1e5: %.2f\n", which.name, which.gamma, at_long / at_short);
  }
  return 0;
}
