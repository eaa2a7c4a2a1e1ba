#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <ATen/Parallel.h>

#include "step_variants.hpp"
#include "timing.hpp"

// Whole-run driver: a local step against its products alone (by BLAS, by the project's own kernels)
// and against an autograd loop, taking turns in one process. Usage: step_ratios [repetitions]

namespace {

using namespace fedhpc::bench;

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
    step.values.push_back(microseconds_per_step(project, kStepsPerPhase));
    blas.values.push_back(microseconds_per_step(products, kStepsPerPhase));
    own.values.push_back(microseconds_per_step(own_products, kStepsPerPhase));
    loop.values.push_back(microseconds_per_step(autograd, kStepsPerPhase));
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
