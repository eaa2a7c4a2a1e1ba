#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <ATen/Parallel.h>

#include "step_variants.hpp"
#include "timing.hpp"

// Whole-run driver: sFedHP's steps on H(theta; phi, D) (K = 5 on a batch) against the products of
// as many steps alone, taking turns in one process. Usage: sfedhp_ratios [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

constexpr std::int64_t kInner = 5;

/// theta of every client, block after block: K steps with each batch of an epoch.
class SparseSteps {
 public:
  SparseSteps(const StepSetting& setting, double gamma)
      : setting_(setting),
        gamma_(gamma),
        optimizer_({.kind = OptimizerKind::Sgd, .lr = 0.05}, setting.model->layout()),
        trainer_(*setting.model, *setting.shard, options_, Context{.seed = 1}),
        phi_(setting.initial.replicate(setting.which.block)),
        theta_(phi_.clone()) {}

  double operator()() {
    const std::vector<std::int64_t>& clients = setting_.shard->clients();
    const Penalty penalty{.mu = 15, .centre = phi_, .gamma = gamma_, .rho = 6e-5};
    ++round_;
    double loss = 0;
    const auto width = static_cast<std::size_t>(setting_.which.block);
    for (std::size_t first = 0; first < clients.size(); first += width) {
      theta_.values.copy_(phi_.values);
      const auto block = std::span(clients).subspan(first, width);
      for (const TrainStatistics& of_client :
           trainer_.each_step(block, round_, /*pass=*/0, [&](LocalStep& step) {
             step.minimise_(theta_, optimizer_, penalty, {.steps = kInner});
           })) {
        loss += of_client.loss;
      }
    }
    return loss;
  }

 private:
  const StepSetting& setting_;
  double gamma_;
  TrainOptions options_;  // batches of 20, one epoch
  RowOptimizer optimizer_;
  LocalTrainer trainer_;
  Rows phi_;    // [block, P]
  Rows theta_;  // [block, P]
  std::int64_t round_ = 0;
};

void compare(const StepCase& which, int repetitions) {
  const StepSetting setting(which);
  SparseSteps dense(setting, 0);
  SparseSteps sparse(setting, 1e-3);
  ProductsAlone blas(setting);
  ProductsAlone own(setting, Kernels::Project);
  Series of_dense;
  Series of_sparse;
  Series of_blas;
  Series of_own;
  for (int r = -1; r < repetitions; ++r) {
    of_dense.values.push_back(microseconds_per_step(dense, kStepsPerPhase * kInner));
    of_sparse.values.push_back(microseconds_per_step(sparse, kStepsPerPhase * kInner));
    of_blas.values.push_back(microseconds_per_step(blas, kStepsPerPhase));
    of_own.values.push_back(microseconds_per_step(own, kStepsPerPhase));
    if (r >= 0) continue;
    for (Series* series : {&of_dense, &of_sparse, &of_blas, &of_own}) {
      series->values.clear();  // first calls allocate
    }
  }
  const Series& products = of_own.median_of() < of_blas.median_of() ? of_own : of_blas;
  std::printf("%-12s %5lld %9.1f %9.1f %9.1f %9.1f %10.2f %10.2f\n", which.name.c_str(),
              static_cast<long long>(which.block), of_dense.median_of(), of_sparse.median_of(),
              of_blas.median_of(), of_own.median_of(), products.over(of_dense),
              products.over(of_sparse));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11;
  at::set_num_threads(1);
  std::printf("%-12s %5s %9s %9s %9s %9s %10s %10s\n", "case", "block", "gamma=0", "gamma>0",
              "BLAS us", "own us", "share", "share>0");
  for (const StepCase& which : step_cases()) compare(which, repetitions);
  return 0;
}
