#include "fedhpc/math/network_lasso.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"

#include "math/laplacian_solver.hpp"
#include "math/network_solver.hpp"
#include "math/network_tiles.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kTilesPerStripe = NetworkLasso::kStripe / kTileColumns;

/// Columns in host memory, tile by tile (see SolverOf).
template <typename T>
class ColumnsInTiles {
 public:
  using Number = T;
  static constexpr bool kOnHost = true;

  ColumnsInTiles(const SimilarityGraph& graph, double eta, double rho)
      : edges_(static_cast<std::int64_t>(graph.edges.size())),
        eta_(eta),
        rho_(rho),
        linear_(graph, eta * rho),
        tiles_(graph) {}

  bool is_direct() const { return linear_.is_direct(); }
  const Tensor& sums() const { return sums_; }

  void take_(const Tensor& z, const Tensor& target, VectorNorm norm) {
    tiles_.take_(z, target);
    terms_ = terms_of(norm);
    sums_ = at::zeros({static_cast<std::int64_t>(stripes<char>().size()), edges_ * terms_},
                      at::kDouble);
    const std::vector<T> numbers(static_cast<std::size_t>(edges_), neutral<T>(VectorNorm::One));
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
      differences_<VectorNorm::One>(tile, numbers, {});
    }
  }
  void give(const Tensor& z) const { tiles_.give(z); }

  template <VectorNorm norm>
  Tensor step_(const std::vector<T>& numbers, const std::vector<double>& levels, bool watched) {
    sums_.zero_();
    std::vector<Squares> squares = watched ? stripes<Squares>() : std::vector<Squares>();
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
      if (watched) measure_<norm>(tile, numbers, squares);
      step_<norm>(tile, numbers, levels);
    }
    return together(squares);
  }

  /// Columns do not meet: all steps of a tile while it lies in a cache.
  void steps_of_one_(const std::vector<T>& numbers, std::int64_t count) {
    const std::vector<T> first(numbers.size(), neutral<T>(VectorNorm::One));
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
      step_<VectorNorm::One>(tile, first, {});
      for (std::int64_t k = 1; k < count; ++k) step_<VectorNorm::One>(tile, numbers, {});
    }
  }

  template <VectorNorm norm>
  Tensor squares(const std::vector<T>& numbers) {
    std::vector<Squares> squares = stripes<Squares>();
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
      measure_<norm>(tile, numbers, squares);
    }
    return together(squares);
  }

  void excess_(const std::vector<double>& levels, const std::vector<char>& done) {
    sums_.zero_();
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
      tiles_.add_excess(tile, levels, done, sums_of(tile));
    }
  }

 private:
  template <VectorNorm norm>
  void step_(std::int64_t tile, const std::vector<T>& numbers, const std::vector<double>& levels) {
    tiles_.template residuals_<norm>(tile, numbers, static_cast<T>(eta_ * rho_));
    linear_.improve_(tiles_.z_of(tile), tiles_.residuals(), kReduction);
    differences_<norm>(tile, numbers, levels);
  }

  template <VectorNorm norm>
  void differences_(std::int64_t tile, const std::vector<T>& numbers,
                    const std::vector<double>& levels) {
    tiles_.template differences_<norm>(tile, numbers, levels, sums_of(tile));
  }

  template <VectorNorm norm>
  void measure_(std::int64_t tile, const std::vector<T>& numbers, std::vector<Squares>& squares) {
    tiles_.template measure_<norm>(tile, numbers, eta_, rho_, squares[stripe(tile)]);
  }

  double* sums_of(std::int64_t tile) {
    return sums_.data_ptr<double>() + static_cast<std::int64_t>(stripe(tile)) * edges_ * terms_;
  }
  std::size_t stripe(std::int64_t tile) const {
    return static_cast<std::size_t>(tile / kTilesPerStripe);
  }
  template <typename Of>
  std::vector<Of> stripes() const {
    return std::vector<Of>(
        static_cast<std::size_t>((tiles_.count() + kTilesPerStripe - 1) / kTilesPerStripe));
  }

  static Tensor together(const std::vector<Squares>& squares) {
    const Tensor parts =
        at::empty({static_cast<std::int64_t>(squares.size()), Square::Terms}, at::kDouble);
    double* next = parts.data_ptr<double>();
    for (const Squares& of_stripe : squares)
      next = std::copy(of_stripe.of.begin(), of_stripe.of.end(), next);
    return parts;
  }

  std::int64_t edges_;
  std::int64_t terms_ = 0;
  double eta_;
  double rho_;
  LaplacianSolver linear_;
  NetworkTiles<T> tiles_;
  Tensor sums_;  // [stripes, E x terms] float64
};

/// Of any rank: all solve theirs in one place, for p = infinity takes other steps in another. Collective.
std::int64_t most_columns(Communicator& comm, const Tensor& z) {
  Tensor most = at::full({1}, z.size(1), at::kLong);
  comm.max_(most);
  return most.item<std::int64_t>();
}

}  // namespace

NetworkLasso::NetworkLasso(SimilarityGraph graph, const NetworkLassoOptions& options)
    : graph_(std::move(graph)), options_(options) {
  require(options_.lambda >= 0 && options_.steps >= 1, "a weight of 0 or more, a step or more");
  require(graph_.weights.size() == graph_.edges.size(), "a weight of every edge");
  require(std::is_sorted(graph_.edges.begin(), graph_.edges.end()), "edges in order");
}

NetworkLasso::~NetworkLasso() = default;

NetworkLassoReport NetworkLasso::solve_(Communicator& comm, const Tensor& z, const Tensor& target,
                                        double eta) {
  require(z.dim() == 2 && z.size(0) == graph_.nodes && z.sizes() == target.sizes() &&
              z.scalar_type() == target.scalar_type(),
          "a row of every node, as in the target");
  require(eta > 0, "a step above 0");
  if (graph_.edges.empty() || options_.lambda == 0) {
    z.copy_(target);
    return {};
  }
  if (on_device(z) && !fits_on_device(graph_.nodes, most_columns(comm, z))) {
    const HostEdit edit(z);
    return solve_(comm, edit.values(), on_host(target), eta);
  }
  if (!solver_ || !solver_->fits(z, eta)) {
    solver_.reset();
    with_type(z.scalar_type(), [&]<typename T>() {
      solver_ = on_device(z) ? solver_on_device<T>(eta)
                             : std::make_unique<SolverOf<ColumnsInTiles<T>>>(graph_, options_, eta);
    });
  }
  return solver_->solve_(comm, z, target);
}

}  // namespace fedhpc
