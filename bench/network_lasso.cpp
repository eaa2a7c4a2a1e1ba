#include "fedhpc/math/network_lasso.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "timing.hpp"

// Whole-run driver: one step of the network lasso's alternating directions against passing once
// over what they are about, W, Omega [E, d_2] and Z [N, d_2]: read, and written as well.
// Usage: network_lasso [nodes] [neighbours] [columns] [repetitions]

namespace {

using namespace fedhpc;

/// Every node joined to `neighbours` others: some near in number, the rest anywhere.
SimilarityGraph graph_of(std::int64_t nodes, std::int64_t neighbours) {
  std::mt19937_64 random(1);
  std::set<std::pair<std::int64_t, std::int64_t>> edges;
  for (std::int64_t i = 0; i < nodes; ++i) {
    for (std::int64_t k = 0; k < neighbours; ++k) {
      const auto draw = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(nodes));
      const std::int64_t j = k < neighbours / 2 ? (i + k + 1) % nodes : draw;
      if (i != j) edges.insert({std::min(i, j), std::max(i, j)});
    }
  }
  SimilarityGraph graph;
  graph.nodes = nodes;
  graph.edges.assign(edges.begin(), edges.end());
  graph.weights.assign(edges.size(), 1);
  return graph;
}

/// Seconds of one pass that adds 1 to every number, and of one that adds them up.
double write_pass(std::vector<float>& numbers) {
  const double begin = bench::cpu_seconds();
  for (float& x : numbers) x += 1;
  return bench::cpu_seconds() - begin;
}

double read_pass(const std::vector<float>& numbers) {
  const double begin = bench::cpu_seconds();
  float sums[16] = {};
  for (std::size_t i = 0; i + 16 <= numbers.size(); i += 16) {
    for (std::size_t k = 0; k < 16; ++k) sums[k] += numbers[i + k];
  }
  double sum = 0;
  for (const float x : sums) sum += static_cast<double>(x);
  require(sum == sum, "numbers that are summed are numbers");
  return bench::cpu_seconds() - begin;
}

double seconds_of(NetworkLasso& lasso, Communicator& comm, const Tensor& start,
                  const Tensor& target) {
  const Tensor z = start.clone();
  const double begin = bench::cpu_seconds();
  lasso.solve_(comm, z, target, 0.5);
  return bench::cpu_seconds() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const auto argument = [&](int i, std::int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const std::int64_t nodes = argument(1, 10000);
  const std::int64_t neighbours = argument(2, 10);
  const std::int64_t columns = argument(3, 2000);
  const auto repetitions = static_cast<int>(argument(4, 3));
  const std::unique_ptr<Communicator> comm = local_communicator();
  const SimilarityGraph graph = graph_of(nodes, neighbours);
  const auto edges = static_cast<std::int64_t>(graph.edges.size());
  std::printf("%lld nodes, %lld edges, %lld columns, float32\n", static_cast<long long>(nodes),
              static_cast<long long>(edges), static_cast<long long>(columns));
  const Tensor start = at::randn({nodes, columns}, at::kFloat);
  const Tensor target = start + 0.1 * at::randn({nodes, columns}, at::kFloat);
  std::vector<float> streamed(static_cast<std::size_t>((2 * edges + nodes) * columns));
  std::printf("%-9s %12s %12s %12s %10s %10s\n", "p", "step [s]", "read [s]", "write [s]",
              "step/read", "step/write");
  const std::pair<const char*, VectorNorm> norms[] = {
      {"1", VectorNorm::One}, {"2", VectorNorm::Two}, {"infinity", VectorNorm::Infinity}};
  for (const auto& [name, norm] : norms) {
    NetworkLassoOptions options;
    options.norm = norm;
    options.lambda = norm == VectorNorm::One ? 0.05 : (norm == VectorNorm::Two ? 1.0 : 20.0);
    options.steps = 2;
    NetworkLasso few(graph, options);
    options.steps = 6;
    NetworkLasso more(graph, options);
    bench::Series steps;
    bench::Series reads;
    bench::Series writes;
    for (int r = 0; r < repetitions; ++r) {
      const double base = seconds_of(few, *comm, start, target);
      steps.values.push_back((seconds_of(more, *comm, start, target) - base) / 4);
      reads.values.push_back(read_pass(streamed));
      writes.values.push_back(write_pass(streamed));
    }
    std::printf("%-9s %12.3f %12.3f %12.3f %10.2f %10.2f\n", name, steps.median_of(),
                reads.median_of(), writes.median_of(), steps.over(reads), steps.over(writes));
  }
  return 0;
}
