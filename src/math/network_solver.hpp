#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/math/network_lasso.hpp"
#include "fedhpc/math/order_free_sum.hpp"

// The steps of the network lasso's ADMM, wherever the columns are held.

namespace fedhpc {

// By how much a step's linear systems come nearer to their solution, where they are not solved
// directly. They start from that of the step before, so that they are solved the better the less
// the steps still move. Levels (p = infinity) go with them: one that is as near as this on entry
// takes a single step of Newton's method, which then ends it.
constexpr double kReduction = 0.25;

constexpr std::int64_t stripes_of(std::int64_t columns) {
  return (columns + NetworkLasso::kStripe - 1) / NetworkLasso::kStripe;
}

/// Whether a device solves so many columns of a rank. (I + c L)^-1 is a full matrix: of more nodes it
/// takes seconds to make. A step is a product in order, which sums up to so many terms at once.
constexpr bool fits_on_device(std::int64_t nodes, std::int64_t columns) {
  return nodes <= DeviceProduct::kPart &&
         stripes_of(columns) * NetworkLasso::kStripe < DeviceProduct::kTooLong;
}

/// One step of Newton's method to the theta with sum_i (|a_i| - theta)_+ = tau (0 where ||a||_1 <=
/// tau): the next theta from that sum, `excess`, and the number of |a_i| above theta. From the right
/// of the solution a step leads to its left, from there on upwards.
inline double next_clip_level(double theta, double excess, std::int64_t above, double tau) {
  if (above == 0) return 0;  // too far to the right: there is no slope
  const double next = theta + (excess - tau) / static_cast<double>(above);
  return next > 0 ? next : 0;
}

/// The order of the squares that make up the residuals.
struct Square {
  enum Term { Primal, W, Zq, Dual, Pull, OmegaQ, Terms };
};

/// The numbers of an edge that are summed over all columns for its next one.
constexpr std::int64_t terms_of(VectorNorm norm) {
  return norm == VectorNorm::One ? 0 : (norm == VectorNorm::Two ? 1 : 2);
}

/// Returns the number with which W = A.
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

/// What does not depend on the number type and on where columns are.
class NetworkLasso::Solver {
 public:
  virtual ~Solver() = default;
  virtual bool fits(const Tensor& z, double eta) const = 0;
  virtual NetworkLassoReport solve_(Communicator& comm, const Tensor& z, const Tensor& target) = 0;
};

/// `Columns` holds Z, V and A of this rank's columns and takes their part of a step:
///
///   Columns(graph, eta, rho)
///   take_(z, v, norm)            Z and V; A = Z Q, as W = Z Q and Omega = 0
///   give(z)
///   step_<norm>(numbers, levels, watched)
///                                Z, then A, for W of A by `numbers`. If watched it first returns the
///                                squares of what was there, parts [m, Square::Terms]
///   steps_of_one_(numbers, count)  that often for p = 1, first with neutral numbers
///   squares<norm>(numbers)
///   sums()                       parts [m, E terms] of what the last step, or excess_(), has summed
///   excess_(levels, done)        p = infinity: the sums at other levels, of edges not done
///   is_direct()                  whether linear systems are solved to rounding
template <typename Columns>
class NetworkLasso::SolverOf final : public Solver {
 public:
  using T = typename Columns::Number;

  SolverOf(const SimilarityGraph& graph, const NetworkLassoOptions& options, double eta)
      : graph_(graph),
        options_(options),
        eta_(eta),
        rho_(options.rho.value_or(penalty(graph, eta))),
        columns_(graph, eta, rho_),
        numbers_(graph.edges.size()) {
    for (const double weight : graph_.weights)
      thresholds_.push_back(options_.lambda * weight / rho_);
  }

  bool fits(const Tensor& z, double eta) const override {
    return z.scalar_type() == c10::CppTypeToScalarType<T>::value &&
           z.is_cpu() == Columns::kOnHost && eta == eta_;
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

  template <VectorNorm norm>
  NetworkLassoReport solve_(const Tensor& z, const Tensor& target) {
    levels_.assign(norm == VectorNorm::Infinity ? numbers_.size() : 0, 0);
    std::fill(numbers_.begin(), numbers_.end(), neutral<T>(norm));
    columns_.take_(z, target, norm);
    NetworkLassoReport report;
    if (norm == VectorNorm::One && options_.tolerance == 0) {
      update_numbers_<VectorNorm::One>();
      columns_.steps_of_one_(numbers_, options_.steps);
      report.steps = options_.steps;
    } else {
      each_step_<norm>(report);
    }
    const NetworkLassoReport seen = relative(columns_.template squares<norm>(numbers_));
    report.primal = seen.primal;
    report.dual = seen.dual;
    columns_.give(z);
    return report;
  }

  template <VectorNorm norm>
  void each_step_(NetworkLassoReport& report) {
    while (report.steps < options_.steps) {
      const bool watched = options_.tolerance > 0 && report.steps > 0;
      const Tensor squares = columns_.template step_<norm>(numbers_, levels_, watched);
      update_numbers_<norm>();
      ++report.steps;
      if (!watched) continue;
      // What has just been measured is the iterate before this step's.
      const NetworkLassoReport seen = relative(squares);
      if (std::max(seen.primal, seen.dual) <= options_.tolerance) break;
    }
  }

  /// The edges' numbers for the new A: thresholds, shares or levels. Collective but for p = 1.
  template <VectorNorm norm>
  void update_numbers_() {
    if constexpr (norm == VectorNorm::One) {
      for (std::size_t m = 0; m < numbers_.size(); ++m) {
        numbers_[m] = static_cast<T>(thresholds_[m]);
      }
    } else if constexpr (norm == VectorNorm::Two) {
      const Tensor squares = order_free_sum(*comm_, columns_.sums());
      for (std::size_t m = 0; m < numbers_.size(); ++m) {
        const double length = std::sqrt(squares.const_data_ptr<double>()[m]);
        numbers_[m] = static_cast<T>(length > thresholds_[m] ? 1 - thresholds_[m] / length : 0);
      }
    } else {
      update_levels_();
    }
  }

  /// p = infinity: Newton's method for all edges together, from the levels they had, where the
  /// sums have been taken.
  void update_levels_() {
    constexpr std::int64_t kMostNewtonSteps = 100;
    const std::size_t count = numbers_.size();
    std::vector<double> last_above(count, -1);
    std::vector<char> done(count, 0);
    const double near = columns_.is_direct() ? 0 : kReduction;
    for (std::int64_t step = 0; step < kMostNewtonSteps; ++step) {
      const Tensor sums = order_free_sum(*comm_, columns_.sums());
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
      columns_.excess_(levels_, done);
    }
    for (std::size_t m = 0; m < count; ++m) numbers_[m] = static_cast<T>(levels_[m]);
  }

  NetworkLassoReport relative(const Tensor& squares) {
    const Tensor sums = order_free_sum(*comm_, squares);
    const auto* sum = sums.const_data_ptr<double>();
    const auto quotient = [](double of, double a, double b) {
      const double scale = std::max(a, b);
      return of == 0 ? 0 : std::sqrt(of / scale);
    };
    return {.primal = quotient(sum[Square::Primal], sum[Square::W], sum[Square::Zq]),
            .dual = quotient(sum[Square::Dual], sum[Square::Pull], sum[Square::OmegaQ])};
  }

  const SimilarityGraph& graph_;
  const NetworkLassoOptions& options_;
  Communicator* comm_ = nullptr;
  double eta_;
  double rho_;
  Columns columns_;
  std::vector<double> thresholds_;  // [E] lambda a_m / rho
  std::vector<T> numbers_;          // [E] what makes W of A
  std::vector<double> levels_;      // [E] of p = infinity, where Newton's method goes on
};

}  // namespace fedhpc
