#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "step_variants.hpp"

// Single figures of the variants of a local step; ratios are the driver's business (step_ratios).

namespace {

using namespace fedhpc::bench;

template <typename Variant>
void phase(benchmark::State& state) {
  at::set_num_threads(1);
  const StepSetting setting(step_cases()[static_cast<std::size_t>(state.range(0))]);
  Variant variant(setting);
  for (auto _ : state) benchmark::DoNotOptimize(variant());
  state.SetLabel(setting.which.name + ", block " + std::to_string(setting.which.block));
  state.SetItemsProcessed(state.iterations() * kStepsPerPhase);  // client-steps
}

void every_case(benchmark::internal::Benchmark* benchmark) {
  benchmark->DenseRange(0, static_cast<std::int64_t>(step_cases().size()) - 1)
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(phase<ProjectSteps>)->Name("local_step")->Apply(every_case);
BENCHMARK(phase<ProductsAlone>)->Name("products_alone")->Apply(every_case);
BENCHMARK(phase<AutogradLoop>)->Name("autograd_loop")->Apply(every_case);

}  // namespace

BENCHMARK_MAIN();
