#include "fedhpc/math/network_lasso.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/math/order_free_sum.hpp"

#include "math/laplacian_solver.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kWidth = kTileColumns;
constexpr std::int64_t kTilesPerStripe = NetworkLasso::kStripe / kWidth;
constexpr std::int64_t kMostNewtonSteps = 100;

// By how much a step's linear systems come nearer to their solution. They start from that of the
// step before, so that they are solved the better the less the steps still move.
constexpr double kReduction = 0.25;

/// Squares that make up the residuals, of float64.
struct Squares {
  enum Term { Primal, W, Zq, Dual, Pull, OmegaQ, Terms };
  std::array<double, Terms> of{};
};

/// [N, w] row by row <-> tiles [N, kWidth] one after the other, the last filled up with zeros.
template <typename T>
void to_tiles(const Tensor& rows, std::vector<T>& tiles) {
  const std::int64_t nodes = rows.size(0);
  std::fill(tiles.begin(), tiles.end(), T(0));
  for (std::int64_t i = 0; i < nodes; ++i) {
    const T* row = rows.const_data_ptr<T>() + i * rows.stride(0);
    for (std::int64_t c = 0; c < rows.size(1); c += kWidth) {
      std::copy_n(row + c, std::min(kWidth, rows.size(1) - c),
                  tiles.data() + c * nodes + i * kWidth);
    }
  }
}

template <typename T>
void from_tiles_(const Tensor& rows, const std::vector<T>& tiles) {
  const std::int64_t nodes = rows.size(0);
  for (std::int64_t i = 0; i < nodes; ++i) {
    T* row = rows.data_ptr<T>() + i * rows.stride(0);
    for (std::int64_t c = 0; c < rows.size(1); c += kWidth) {
      std::copy_n(tiles.data() + c * nodes + i * kWidth, std::min(kWidth, rows.size(1) - c),
                  row + c);
    }
  }
}

/// W of A, coordinate by coordinate, by one number of the edge: the threshold (p = 1), the share
/// that stays (p = 2), the level entries are clipped to (p = infinity).
template <VectorNorm norm, typename T>
T shrunk(T a, T number) {
  if constexpr (norm == VectorNorm::One) return a - std::clamp(a, -number, number);
  if constexpr (norm == VectorNorm::Two) return number * a;
  if constexpr (norm == VectorNorm::Infinity) return std::clamp(a, -number, number);
}

/// The number with which W = A.
template <typename T>
T neutral(VectorNorm norm) {
  switch (norm) {
    case VectorNorm::One:
      return 0;
    case VectorNorm::Two:
      return 1;
    case VectorNorm::Infinity:
      return std::numeric_limits<T>::infinity();
  }
  return 0;
}

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
  using Lanes = std::array<T, static_cast<std::size_t>(kWidth)>;

  static double penalty(const SimilarityGraph& graph, double eta) {
    const double degree =
        2 * static_cast<double>(graph.edges.size()) / static_cast<double>(graph.nodes);
    return 1 / (eta * (1 + degree));
  }

  std::int64_t edges() const { return static_cast<std::int64_t>(graph_.edges.size()); }

  template <VectorNorm norm>
  NetworkLassoReport solve_(const Tensor& z, const Tensor& target) {
    tiles_ = (z.size(1) + kWidth - 1) / kWidth;
    const auto of_nodes = static_cast<std::size_t>(tiles_ * graph_.nodes * kWidth);
    z_.resize(of_nodes);
    v_.resize(of_nodes);
    a_.resize(static_cast<std::size_t>(tiles_ * edges() * kWidth));
    right_.resize(static_cast<std::size_t>(graph_.nodes * kWidth));
    pull_.resize(right_.size());
    to_tiles(z, z_);
    to_tiles(target, v_);
    sums_ = at::zeros({static_cast<std::int64_t>(stripes<char>().size()), edges() * terms_of(norm)},
                      at::kDouble);
    levels_.assign(norm == VectorNorm::Infinity ? numbers_.size() : 0, 0);
    start_(norm);
    NetworkLassoReport report;
    for (std::int64_t k = 0; k < options_.steps; ++k) {
      const bool watched = options_.tolerance > 0 && k > 0;
      std::vector<Squares> squares = watched ? stripes<Squares>() : std::vector<Squares>();
      for (std::int64_t tile = 0; tile < tiles_; ++tile) {
        right_sides_<norm>(tile, watched ? &squares[stripe(tile)] : nullptr);
        linear_.solve_(nodes_of(z_, tile), right_.data(), kReduction);
        differences_<norm>(tile);
      }
      update_numbers_<norm>();
      report.steps = k + 1;
      if (!watched) continue;
      // What has just been measured is the iterate before this step's.
      const NetworkLassoReport seen = relative(squares);
      if (std::max(seen.primal, seen.dual) <= options_.tolerance) break;
    }
    std::vector<Squares> squares = stripes<Squares>();
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      right_sides_<norm>(tile, &squares[stripe(tile)]);
    }
    const NetworkLassoReport seen = relative(squares);
    report.primal = seen.primal;
    report.dual = seen.dual;
    from_tiles_(z, z_);
    return report;
  }

  /// A = W = Z Q, Omega = 0.
  void start_(VectorNorm norm) {
    std::fill(numbers_.begin(), numbers_.end(), neutral<T>(norm));
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      const T* z = nodes_of(z_, tile);
      T* a = edges_of(tile);
      for (std::int64_t m = 0; m < edges(); ++m, a += kWidth) {
        const auto& [i, j] = graph_.edges[static_cast<std::size_t>(m)];
        for (std::int64_t k = 0; k < kWidth; ++k) a[k] = z[i * kWidth + k] - z[j * kWidth + k];
      }
    }
  }

  /// right_ = V + eta (Omega + rho W) Q^T, with Omega = rho (W - A); where `squares` are asked for,
  /// adds this tile's.
  template <VectorNorm norm>
  void right_sides_(std::int64_t tile, Squares* squares) {
    std::fill(right_.begin(), right_.end(), T(0));
    if (squares != nullptr) measure<norm>(tile, *squares);
    const T* a = edges_of(tile);
    for (std::int64_t m = 0; m < edges(); ++m, a += kWidth) {
      const auto at = static_cast<std::size_t>(m);
      const T number = numbers_[at];
      T* plus = right_.data() + graph_.edges[at].first * kWidth;
      T* minus = right_.data() + graph_.edges[at].second * kWidth;
      // By way of registers: the rows might be one and the same for all the compiler knows.
      Lanes x;
      for (std::int64_t k = 0; k < kWidth; ++k) x[k] = 2 * shrunk<norm>(a[k], number) - a[k];
      for (std::int64_t k = 0; k < kWidth; ++k) plus[k] += x[k];
      for (std::int64_t k = 0; k < kWidth; ++k) minus[k] -= x[k];
    }
    const T* v = nodes_of(v_, tile);
    const auto factor = static_cast<T>(eta_ * rho_);
    for (std::size_t i = 0; i < right_.size(); ++i) right_[i] = v[i] + factor * right_[i];
  }

  /// The residuals' squares of a tile, for W, Omega and Z as they are.
  template <VectorNorm norm>
  void measure(std::int64_t tile, Squares& squares) {
    std::fill(pull_.begin(), pull_.end(), T(0));
    const T* z = nodes_of(z_, tile);
    const T* a = edges_of(tile);
    for (std::int64_t m = 0; m < edges(); ++m, a += kWidth) {
      const auto at = static_cast<std::size_t>(m);
      const std::int64_t i = graph_.edges[at].first * kWidth;
      const std::int64_t j = graph_.edges[at].second * kWidth;
      T primal = 0;
      T of_w = 0;
      T of_zq = 0;
      for (std::int64_t k = 0; k < kWidth; ++k) {
        const T w = shrunk<norm>(a[k], numbers_[at]);
        const T zq = z[i + k] - z[j + k];
        primal += (w - zq) * (w - zq);
        of_w += w * w;
        of_zq += zq * zq;
        pull_[static_cast<std::size_t>(i + k)] += w - a[k];
        pull_[static_cast<std::size_t>(j + k)] -= w - a[k];
      }
      squares.of[Squares::Primal] += static_cast<double>(primal);
      squares.of[Squares::W] += static_cast<double>(of_w);
      squares.of[Squares::Zq] += static_cast<double>(of_zq);
    }
    const T* v = nodes_of(v_, tile);
    for (std::size_t i = 0; i < pull_.size(); ++i) {
      const double gradient = static_cast<double>(z[i] - v[i]) / eta_;
      const double dual = rho_ * static_cast<double>(pull_[i]);
      squares.of[Squares::Dual] += (gradient - dual) * (gradient - dual);
      squares.of[Squares::Pull] += gradient * gradient;
      squares.of[Squares::OmegaQ] += dual * dual;
    }
  }

  /// A <- Z Q - Omega / rho, of the tiles of all of this rank's columns one after the other. What
  /// the edges' next numbers follow from is added up on the way.
  template <VectorNorm norm>
  void differences_(std::int64_t tile) {
    const T* z = nodes_of(z_, tile);
    T* a = edges_of(tile);
    double* sums = sums_of(tile, terms_of(norm));
    for (std::int64_t m = 0; m < edges(); ++m, a += kWidth) {
      const auto at = static_cast<std::size_t>(m);
      const T number = numbers_[at];
      const T* plus = z + graph_.edges[at].first * kWidth;
      const T* minus = z + graph_.edges[at].second * kWidth;
      Lanes x;
      for (std::int64_t k = 0; k < kWidth; ++k) {
        x[k] = plus[k] - minus[k] + (a[k] - shrunk<norm>(a[k], number));
      }
      std::copy(x.begin(), x.end(), a);
      if constexpr (norm == VectorNorm::Two) {
        T square = 0;
        for (std::int64_t k = 0; k < kWidth; ++k) square += x[k] * x[k];
        sums[m] += static_cast<double>(square);
      }
      if constexpr (norm == VectorNorm::Infinity) add_excess(x.data(), levels_[at], sums + 2 * m);
    }
  }

  /// sum of (|a| - level)_+ and the number of |a| above it.
  static void add_excess(const T* a, double level, double* sums) {
    const auto above = static_cast<T>(level);
    T excess = 0;
    T count = 0;
    for (std::int64_t k = 0; k < kWidth; ++k) {
      const T beyond = std::abs(a[k]) - above;
      excess += beyond > 0 ? beyond : 0;
      count += beyond > 0 ? T(1) : T(0);
    }
    sums[0] += static_cast<double>(excess);
    sums[1] += static_cast<double>(count);
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
        all_done = false;
        last_above[m] = above;
        levels_[m] = static_cast<double>(static_cast<T>(
            next_clip_level(levels_[m], excess, static_cast<std::int64_t>(above), thresholds_[m])));
      }
      if (all_done) break;
      sums_.zero_();
      for (std::int64_t tile = 0; tile < tiles_; ++tile) {
        const T* a = edges_of(tile);
        double* of_tile = sums_of(tile, 2);
        for (std::size_t m = 0; m < count; ++m, a += kWidth) {
          if (done[m] == 0) add_excess(a, levels_[m], of_tile + 2 * m);
        }
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
        static_cast<std::size_t>((tiles_ + kTilesPerStripe - 1) / kTilesPerStripe));
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

  T* nodes_of(std::vector<T>& tiles, std::int64_t tile) const {
    return tiles.data() + tile * graph_.nodes * kWidth;
  }
  T* edges_of(std::int64_t tile) { return a_.data() + tile * edges() * kWidth; }

  const SimilarityGraph& graph_;
  const NetworkLassoOptions& options_;
  Communicator* comm_ = nullptr;
  double eta_;
  double rho_;
  LaplacianSolver linear_;
  std::vector<double> thresholds_;  // [E] lambda a_m / rho
  std::vector<T> numbers_;          // [E] what makes W of A
  std::vector<double> levels_;      // [E] of p = infinity, where Newton's method goes on
  Tensor sums_;                     // [stripes, E x terms] float64
  std::int64_t tiles_ = 0;          // of this rank
  std::vector<T> z_;                // [tiles, N, kWidth]
  std::vector<T> v_;                // [tiles, N, kWidth]
  std::vector<T> a_;                // [tiles, E, kWidth]
  std::vector<T> right_;            // [N, kWidth]
  std::vector<T> pull_;             // [N, kWidth]  (W - A) Q^T
};

NetworkLasso::NetworkLasso(SimilarityGraph graph, const NetworkLassoOptions& options)
    : graph_(std::move(graph)), options_(options) {
  require(options_.lambda >= 0 && options_.steps >= 1, "a weight of 0 or more, a step or more");
  require(graph_.weights.size() == graph_.edges.size(), "a weight of every edge");
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
