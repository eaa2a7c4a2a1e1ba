// The network lasso's columns on a device: kernels of all of them, and a product with the systems'
// inverse.

#include <algorithm>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"
#include "fedhpc/math/cholesky.hpp"
#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/math/products.hpp"

#include "math/network_solver.hpp"

namespace fedhpc {

namespace {

static_assert(DeviceNetwork::kStripe == NetworkLasso::kStripe);

/// (I + c L)^-1 of the graph's Laplacian, [1, N, N] float64 in host memory.
Tensor inverse_of(const SimilarityGraph& graph, double c) {
  Tensor system = at::eye(graph.nodes, at::kDouble);
  auto* entries = system.data_ptr<double>();
  const auto entry = [&](std::int64_t i, std::int64_t j) -> double& {
    return entries[i * graph.nodes + j];
  };
  for (const auto& [i, j] : graph.edges) {
    entry(i, i) += c;
    entry(j, j) += c;
    entry(i, j) -= c;
    entry(j, i) -= c;
  }
  Tensor inverse = at::eye(graph.nodes, at::kDouble);
  cholesky_(system);
  solve_lower_(system, inverse);
  solve_lower_transposed_(system, inverse);
  return inverse.unsqueeze(0);
}

/// The graph as kernels read it.
struct GraphOnDevice {
  Tensor ends;    // [E, 2]
  Tensor joined;  // [2 E, 2]
  Tensor starts;  // [N + 1]

  GraphOnDevice(const SimilarityGraph& graph, at::Device device) {
    const auto edges = static_cast<std::int64_t>(graph.edges.size());
    require(graph.nodes < (1 << 30) && edges < (1 << 30), "edges are counted in 32 bits");
    ends = at::empty({edges, 2}, at::kInt);
    joined = at::empty({2 * edges, 2}, at::kInt);
    starts = at::zeros({graph.nodes + 1}, at::kInt);
    auto* end = ends.data_ptr<std::int32_t>();
    auto* start = starts.data_ptr<std::int32_t>();
    for (const auto& [i, j] : graph.edges) {
      *end++ = static_cast<std::int32_t>(i);
      *end++ = static_cast<std::int32_t>(j);
      ++start[i + 1];
      ++start[j + 1];
    }
    for (std::int64_t i = 0; i < graph.nodes; ++i) start[i + 1] += start[i];
    std::vector<std::int32_t> next(start, start + graph.nodes);
    auto* at_node = joined.data_ptr<std::int32_t>();
    const auto join = [&](std::int64_t node, std::int32_t edge, std::int64_t other) {
      const std::int32_t place = next[static_cast<std::size_t>(node)]++;
      at_node[2 * place] = edge;
      at_node[2 * place + 1] = static_cast<std::int32_t>(other);
    };
    for (std::int32_t m = 0; m < edges; ++m) {
      const auto& [i, j] = graph.edges[static_cast<std::size_t>(m)];
      join(i, m, j);
      join(j, -1 - m, i);
    }
    for (Tensor* part : {&ends, &joined, &starts}) *part = to_device(*part, device);
  }
};

/// Columns on this thread's device (see SolverOf). What is summed of a stripe depends on its columns
/// alone, and so does their solution.
template <typename T>
class ColumnsOnDevice {
 public:
  using Number = T;
  static constexpr bool kOnHost = false;

  ColumnsOnDevice(const SimilarityGraph& graph, double eta, double rho)
      : nodes_(graph.nodes),
        edges_(static_cast<std::int64_t>(graph.edges.size())),
        eta_(eta),
        rho_(rho),
        device_(current_cuda_device()),
        graph_(graph, device_),
        inverse_(to_device(inverse_of(graph, eta * rho).to(kType), device_)) {}

  bool is_direct() const { return true; }
  const Tensor& sums() const { return sums_; }

  void take_(const Tensor& z, const Tensor& target, VectorNorm norm) {
    stripes_ = stripes_of(z.size(1));
    const std::int64_t width = stripes_ * DeviceNetwork::kStripe;
    const auto whole = [&](const Tensor& columns) {
      Tensor filled = at::zeros({nodes_, width}, columns.options());
      filled.narrow(1, 0, columns.size(1)).copy_(columns);
      return filled;
    };
    z_ = whole(z);
    v_ = whole(target);
    a_ = at::zeros({edges_, width}, z.options());
    residuals_ = at::empty_like(z_);
    sums_ = at::empty({stripes_, edges_ * terms_of(norm)}, z.options().dtype(at::kDouble));
    const std::vector<T> numbers(static_cast<std::size_t>(edges_), neutral<T>(VectorNorm::One));
    differences_(network<VectorNorm::One>(uploaded(numbers)), {}, /*stays=*/false);
  }
  void give(const Tensor& z) {
    z.copy_(z_.narrow(1, 0, z.size(1)));
    z_ = v_ = a_ = residuals_ = Tensor();
  }

  template <VectorNorm norm>
  Tensor step_(const std::vector<T>& numbers, const std::vector<double>& levels, bool watched) {
    const Tensor of_edges = uploaded(numbers);
    const Tensor squares = watched ? squares_by<norm>(of_edges) : Tensor();
    step_<norm>(of_edges, levels);
    return squares;
  }

  void steps_of_one_(const std::vector<T>& numbers, std::int64_t count) {
    step_<VectorNorm::One>(uploaded(std::vector<T>(numbers.size(), neutral<T>(VectorNorm::One))),
                           {});
    const Tensor of_edges = uploaded(numbers);
    for (std::int64_t k = 1; k < count; ++k) step_<VectorNorm::One>(of_edges, {});
  }

  template <VectorNorm norm>
  Tensor squares(const std::vector<T>& numbers) {
    return squares_by<norm>(uploaded(numbers));
  }

  void excess_(const std::vector<double>& levels, const std::vector<char>& /*done*/) {
    differences_(network<VectorNorm::Infinity>({}), levels, /*stays=*/true);
  }

 private:
  static constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;

  template <typename Of>
  Tensor uploaded(const std::vector<Of>& values) const {
    Tensor host =
        at::empty({static_cast<std::int64_t>(values.size())}, c10::CppTypeToScalarType<Of>::value);
    std::copy(values.begin(), values.end(), host.data_ptr<Of>());
    return to_device(host, device_);
  }

  template <VectorNorm norm>
  DeviceNetwork network(const Tensor& numbers) const {
    return {.type = real_of(z_),
            .norm = norm,
            .nodes = nodes_,
            .edges = edges_,
            .stripes = stripes_,
            .ends = graph_.ends.const_data_ptr<std::int32_t>(),
            .joined = graph_.joined.const_data_ptr<std::int32_t>(),
            .starts = graph_.starts.const_data_ptr<std::int32_t>(),
            .numbers = numbers.defined() ? numbers.const_data_ptr() : nullptr,
            .z = z_.data_ptr(),
            .v = v_.const_data_ptr(),
            .a = a_.data_ptr()};
  }

  template <VectorNorm norm>
  void step_(const Tensor& numbers, const std::vector<double>& levels) {
    device_kernels<MathKernels>().network_residuals(
        {.of = network<norm>(numbers), .eta_rho = eta_ * rho_, .residuals = residuals_.data_ptr()});
    batched_product(kType, 1, 1, matrices_of(inverse_), Transpose::No,
                    matrices_of(residuals_.unsqueeze(0)), Transpose::No, 1,
                    matrices_of(z_.unsqueeze(0)), {.summation = Summation::Reproducible});
    differences_(network<norm>(numbers), levels, /*stays=*/false);
  }

  void differences_(const DeviceNetwork& of, const std::vector<double>& levels, bool stays) {
    const Tensor at_levels = uploaded(levels);
    device_kernels<MathKernels>().network_differences(
        {.of = of,
         .stays = stays,
         .levels = levels.empty() ? nullptr : at_levels.const_data_ptr<double>(),
         .sums = of.norm == VectorNorm::One ? nullptr : sums_.data_ptr<double>()});
  }

  template <VectorNorm norm>
  Tensor squares_by(const Tensor& numbers) const {
    const Tensor parts = at::empty({stripes_, Square::Terms}, sums_.options());
    device_kernels<MathKernels>().network_squares(
        {.of = network<norm>(numbers), .eta = eta_, .rho = rho_, .sums = parts.data_ptr<double>()});
    return parts;
  }

  std::int64_t nodes_;
  std::int64_t edges_;
  std::int64_t stripes_ = 0;
  double eta_;
  double rho_;
  at::Device device_;
  GraphOnDevice graph_;
  Tensor inverse_;    // [1, N, N]
  Tensor z_;          // [N, width]
  Tensor v_;          // [N, width]
  Tensor a_;          // [E, width]
  Tensor residuals_;  // [N, width]
  Tensor sums_;       // [stripes, E x terms] float64
};

}  // namespace

template <typename T>
std::unique_ptr<NetworkLasso::Solver> NetworkLasso::solver_on_device(double eta) const {
  return std::make_unique<SolverOf<ColumnsOnDevice<T>>>(graph_, options_, eta);
}

template std::unique_ptr<NetworkLasso::Solver> NetworkLasso::solver_on_device<float>(double) const;
template std::unique_ptr<NetworkLasso::Solver> NetworkLasso::solver_on_device<double>(double) const;

}  // namespace fedhpc
