#include "fedhpc/math/network_lasso.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/math/order_free_sum.hpp"

#include "math/laplacian_solver.hpp"
#include "math/network_tiles.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kTilesPerStripe = NetworkLasso::kStripe / kTileColumns;
constexpr std::int64_t kMostNewtonSteps = 100;

// By how much a step's linear systems come nearer to their solution, where they are not solved
// directly. They start from that of the step before, so that they are solved the better the less
// the steps still move. Levels (p = infinity) go with them: one that is as near as this on entry
// takes a single step of Newton's method, which then ends it.
constexpr double kReduction = 0.25;

}  // namespace

/// What does not depend on the number type.
class NetworkLasso::Solver {
 public:
  virtual ~Solver() = default;
  virtual bool fits(at::ScalarType type, double eta) const = 0;
  virtual NetworkLassoReport solve_(Communicator& comm, const Tensor& z, const Tensor& target) = 0;
};

template <typename T>
class NetworkLasso::SolverOf final : public Solver {
 public:
  SolverOf(const SimilarityGraph& graph, const NetworkLassoOptions& options, double eta)
      : graph_(graph),
        options_(options),
        eta_(eta),
        rho_(options.rho.value_or(penalty(graph, eta))),
        linear_(graph, eta * rho_),
        tiles_(graph),
        numbers_(graph.edges.size()) {
    for (const double weight : graph_.weights)
      thresholds_.push_back(options_.lambda * weight / rho_);
  }

  bool fits(at::ScalarType type, double eta) const override {
    return type == c10::CppTypeToScalarType<T>::value && eta == eta_;
  }

  NetworkLassoReport solve_(Communicator& comm, const Tensor& z, const Tensor& target) override {
    comm_ = &comm;
    switch (options_.norm) {
      case VectorNorm::One:
        return solve_<VectorNorm::One>(z, target);
      case VectorNorm::Two:
        return solve_<VectorNorm::Two>(z, target);
      default:
        return solve_<VectorNorm::Infinity>(z, target);
    }
  }

 private:
  static double penalty(const SimilarityGraph& graph, double eta) {
    const double degree =
        2 * static_cast<double>(graph.edges.size()) / static_cast<double>(graph.nodes);
    return 1 / (eta * (1 + degree));
  }

  std::int64_t edges() const { return static_cast<std::int64_t>(graph_.edges.size()); }

  template <VectorNorm norm>
  NetworkLassoReport solve_(const Tensor& z, const Tensor& target) {
    tiles_.take_(z, target);
    sums_ = at::zeros({static_cast<std::int64_t>(stripes<char>().size()), edges() * terms_of(norm)},
                      at::kDouble);
    levels_.assign(norm == VectorNorm::Infinity ? numbers_.size() : 0, 0);
    // W = Z Q and Omega = 0.
    std::fill(numbers_.begin(), numbers_.end(), neutral<T>(norm));
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) differences_<norm>(tile);
    sums_.zero_();
    NetworkLassoReport report;
    if (norm == VectorNorm::One && options_.tolerance == 0) {
      all_steps_(report);
    } else {
      each_step_<norm>(report);
    }
    std::vector<Squares> squares = stripes<Squares>();
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) measure_<norm>(tile, squares);
    const NetworkLassoReport seen = relative(squares);
    report.primal = seen.primal;
    report.dual = seen.dual;
    tiles_.give(z);
    return report;
  }

  template <VectorNorm norm>
  void each_step_(NetworkLassoReport& report) {
    while (report.steps < options_.steps) {
      const bool watched = options_.tolerance > 0 && report.steps > 0;
      std::vector<Squares> squares = watched ? stripes<Squares>() : std::vector<Squares>();
      for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
        if (watched) measure_<norm>(tile, squares);
        step_<norm>(tile);
      }
      update_numbers_<norm>();
      ++report.steps;
      if (!watched) continue;
      // What has just been measured is the iterate before this step's.
      const NetworkLassoReport seen = relative(squares);
      if (std::max(seen.primal, seen.dual) <= options_.tolerance) break;
    }
  }

  /// p = 1, where columns do not meet: all steps of a tile while it lies in a cache.
  void all_steps_(NetworkLassoReport& report) {
    const std::vector<T> first = numbers_;
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
      numbers_ = first;
      step_<VectorNorm::One>(tile);
      update_numbers_<VectorNorm::One>();
      for (std::int64_t k = 1; k < options_.steps; ++k) step_<VectorNorm::One>(tile);
    }
    report.steps = options_.steps;
  }

  template <VectorNorm norm>
  void step_(std::int64_t tile) {
    tiles_.template residuals_<norm>(tile, numbers_, static_cast<T>(eta_ * rho_));
    linear_.improve_(tiles_.z_of(tile), tiles_.residuals(), kReduction);
    differences_<norm>(tile);
  }

  template <VectorNorm norm>
  void differences_(std::int64_t tile) {
    tiles_.template differences_<norm>(tile, numbers_, levels_, sums_of(tile, terms_of(norm)));
  }

  template <VectorNorm norm>
  void measure_(std::int64_t tile, std::vector<Squares>& squares) {
    tiles_.template measure_<norm>(tile, numbers_, eta_, rho_, squares[stripe(tile)]);
  }

  /// The edges' numbers for the new A: thresholds, shares or levels. Collective but for p = 1.
  template <VectorNorm norm>
  void update_numbers_() {
    if constexpr (norm == VectorNorm::One) {
      for (std::size_t m = 0; m < numbers_.size(); ++m) {
        numbers_[m] = static_cast<T>(thresholds_[m]);
      }
    } else if constexpr (norm == VectorNorm::Two) {
      const Tensor squares = order_free_sum(*comm_, sums_);
      for (std::size_t m = 0; m < numbers_.size(); ++m) {
        const double length = std::sqrt(squares.const_data_ptr<double>()[m]);
        numbers_[m] = static_cast<T>(length > thresholds_[m] ? 1 - thresholds_[m] / length : 0);
      }
    } else {
      update_levels_();
    }
    sums_.zero_();
  }

  /// p = infinity: Newton's method for all edges together, from the levels they had, where the
  /// sums have been taken.
  void update_levels_() {
    const std::size_t count = numbers_.size();
    std::vector<double> last_above(count, -1);
    std::vector<char> done(count, 0);
    const double near = linear_.is_direct() ? 0 : kReduction;
    for (std::int64_t step = 0; step < kMostNewtonSteps; ++step) {
      const Tensor sums = order_free_sum(*comm_, sums_);
      const auto* of_edges = sums.const_data_ptr<double>();
      bool all_done = true;
      for (std::size_t m = 0; m < count; ++m) {
        if (done[m] != 0) continue;
        const double excess = of_edges[2 * m];
        const double above = of_edges[2 * m + 1];
        // From the left, entries above the level only become fewer: once they stay, so does it.
        // At level 0 the excess is the l1 norm.
        done[m] = above == last_above[m] || std::isnan(excess) ||
                  (levels_[m] == 0 && excess <= thresholds_[m]);
        if (done[m] != 0) continue;
        last_above[m] = above;
        levels_[m] = static_cast<double>(static_cast<T>(
            next_clip_level(levels_[m], excess, static_cast<std::int64_t>(above), thresholds_[m])));
        done[m] = above > 0 && std::abs(excess - thresholds_[m]) <= near * thresholds_[m];
        all_done = all_done && done[m] != 0;
      }
      if (all_done) break;
      sums_.zero_();
      for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
        tiles_.add_excess(tile, levels_, done, sums_of(tile, 2));
      }
    }
    for (std::size_t m = 0; m < count; ++m) numbers_[m] = static_cast<T>(levels_[m]);
  }

  /// Numbers of an edge that are summed over all columns for its next one.
  static std::int64_t terms_of(VectorNorm norm) {
    return norm == VectorNorm::One ? 0 : (norm == VectorNorm::Two ? 1 : 2);
  }
  double* sums_of(std::int64_t tile, std::int64_t terms) {
    return sums_.data_ptr<double>() + static_cast<std::int64_t>(stripe(tile)) * edges() * terms;
  }

  std::size_t stripe(std::int64_t tile) const {
    return static_cast<std::size_t>(tile / kTilesPerStripe);
  }
  template <typename Of>
  std::vector<Of> stripes() const {
    return std::vector<Of>(
        static_cast<std::size_t>((tiles_.count() + kTilesPerStripe - 1) / kTilesPerStripe));
  }

  NetworkLassoReport relative(const std::vector<Squares>& squares) {
    const Tensor parts =
        at::empty({static_cast<std::int64_t>(squares.size()), Squares::Terms}, at::kDouble);
    double* next = parts.data_ptr<double>();
    for (const Squares& of_stripe : squares)
      next = std::copy(of_stripe.of.begin(), of_stripe.of.end(), next);
    const Tensor sums = order_free_sum(*comm_, parts);
    const auto* sum = sums.const_data_ptr<double>();
    const auto quotient = [](double of, double a, double b) {
      const double scale = std::max(a, b);
      return of == 0 ? 0 : std::sqrt(of / scale);
    };
    return {.primal = quotient(sum[Squares::Primal], sum[Squares::W], sum[Squares::Zq]),
            .dual = quotient(sum[Squares::Dual], sum[Squares::Pull], sum[Squares::OmegaQ])};
  }

  const SimilarityGraph& graph_;
  const NetworkLassoOptions& options_;
  Communicator* comm_ = nullptr;
  double eta_;
  double rho_;
  LaplacianSolver linear_;
  NetworkTiles<T> tiles_;
  std::vector<double> thresholds_;  // [E] lambda a_m / rho
  std::vector<T> numbers_;          // [E] what makes W of A
  std::vector<double> levels_;      // [E] of p = infinity, where Newton's method goes on
  Tensor sums_;                     // [stripes, E x terms] float64
};

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
  if (!solver_ || !solver_->fits(z.scalar_type(), eta)) {
    with_type(z.scalar_type(), [&]<typename T>() {
      solver_ = std::make_unique<SolverOf<T>>(graph_, options_, eta);
    });
  }
  return solver_->solve_(comm, z, target);
}

}  // namespace fedhpc
