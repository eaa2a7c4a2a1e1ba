#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <ATen/Parallel.h>

#include "step_variants.hpp"

// Whole-run driver: a local step against its products alone (by BLAS, by the project's own kernels)
// and against an autograd loop, taking turns in one process. Usage: step_ratios [repetitions]

namespace {

using namespace fedhpc::bench;

/// CPU time of this process [s]: other work on the machine does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Variant>
double microseconds_per_step(Variant& variant) {
  const double begin = cpu_seconds();
  fedhpc::require(std::isfinite(variant()), "a variant computes finite numbers");
  return 1e6 * (cpu_seconds() - begin) / static_cast<double>(kStepsPerPhase);
}

/// The medians of a series of times, and of its ratios to another series.
struct Series {
  std::vector<double> values;

  double median_of() const { return median(values); }
  double over(const Series& other) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ratios.push_back(values[i] / other.values[i]);
    }
    return median(ratios);
  }
};

void compare(const StepCase& which, int repetitions) {
  const StepSetting setting(which);
  ProjectSteps project(setting);
  ProductsAlone products(setting);
  ProductsAlone own_products(setting, Kernels::Project);
  AutogradLoop autograd(setting);
  Series step;
  Series blas;
  Series own;
  Series loop;
  for (int r = -1; r < repetitions; ++r) {
    step.values.push_back(microseconds_per_step(project));
    blas.values.push_back(microseconds_per_step(products));
    own.values.push_back(microseconds_per_step(own_products));
    loop.values.push_back(microseconds_per_step(autograd));
    if (r >= 0) continue;
    for (Series* series : {&step, &blas, &own, &loop})
      series->values.clear();  // first calls allocate
  }
  std::printf("%-12s %5lld %9.1f %9.1f %9.1f %9.1f %10.2f %10.2f %14.2f\n", which.name.c_str(),
              static_cast<long long>(which.block), step.median_of(), blas.median_of(),
              own.median_of(), loop.median_of(), step.over(blas), step.over(own), loop.over(step));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 51;
  at::set_num_threads(1);
  std::printf("%-12s %5s %9s %9s %9s %9s %10s %10s %14s\n", "case", "block", "step us", "BLAS us",
              "own us", "loop us", "step/BLAS", "step/own", "loop/step");
  for (const StepCase& which : step_cases()) compare(which, repetitions);
  return 0;
}
