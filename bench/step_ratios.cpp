#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <ATen/Parallel.h>

#include "step_variants.hpp"

// Whole-run driver: a local step against its products alone and against an autograd loop, the three
// taking turns in one process. Usage: step_ratios [repetitions]

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

void compare(const StepCase& which, int repetitions) {
  const StepSetting setting(which);
  ProjectSteps project(setting);
  ProductsAlone products(setting);
  AutogradLoop autograd(setting);
  project();  // first calls allocate, and load the BLAS
  products();
  autograd();
  std::vector<double> step;
  std::vector<double> bare;
  std::vector<double> loop;
  std::vector<double> over_products;
  std::vector<double> ahead_of_loop;
  for (int r = 0; r < repetitions; ++r) {
    step.push_back(microseconds_per_step(project));
    bare.push_back(microseconds_per_step(products));
    loop.push_back(microseconds_per_step(autograd));
    over_products.push_back(step.back() / bare.back());
    ahead_of_loop.push_back(loop.back() / step.back());
  }
  std::printf("%-12s %5lld %9.1f %12.1f %12.1f %14.2f %14.2f\n", which.name.c_str(),
              static_cast<long long>(which.block), median(step), median(bare), median(loop),
              median(over_products), median(ahead_of_loop));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 51;
  at::set_num_threads(1);
  std::printf("%-12s %5s %9s %12s %12s %14s %14s\n", "case", "block", "step us", "products us",
              "autograd us", "step/products", "autograd/step");
  for (const StepCase& which : step_cases()) compare(which, repetitions);
  return 0;
}
