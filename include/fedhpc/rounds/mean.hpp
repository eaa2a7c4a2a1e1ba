#pragma once

#include <span>

#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/edge_rows.hpp"
#include "fedhpc/rounds/round_log.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/rounds/weighted_sum.hpp"

namespace fedhpc {

/// The services and sizes a mean works with.
struct MeanServices {
  Topology& topology;
  LayoutPtr layout;
  Context context;
  Stopwatch& watch;
  RoundLog* log = nullptr;  ///< of the mean's round; null: none
  /// So many participants have to be in the mean, and to weigh the same: privacy.noise; 0: any.
  std::int64_t equal = 0;
};

/// A weighted sum that the round's log knows. It is taken once: the ranks' sums are added in place.
class LoggedSum {
 public:
  LoggedSum(const MeanServices& services, std::int64_t segments);

  /// For more addends. Throws std::logic_error once the sum is taken.
  WeightedSum* operator->();
  /// Returns of_sums(sums over these ranks, [S, P]); blank() where the round is left. Throws
  /// std::logic_error at a second call.
  Tensor take(const MeanServices& services, Among ranks,
              const std::function<Tensor(const Tensor&)>& of_sums,
              const std::function<Tensor()>& blank);

 private:
  WeightedSum sum_;
  std::size_t place_ = 0;  // in the log
  bool taken_ = false;
};

/// Takes a weighted mean of rows over all clients of all ranks. It keeps one accumulator and needs
/// one allreduce of P sums and the weight.
class Mean {
 public:
  explicit Mean(const MeanServices& services);

  /// Adds weights[c] * rows[c] for every client c of the rows, which stay as they are until
  /// reduce() (see WeightedSum).
  void add(std::span<const double> weights, const Rows& rows);

  /// Returns the mean over all ranks, [1, P]; zeros when the weights sum to 0. Collective; call it
  /// once. Throws ConfigError where participants have to weigh the same and do not.
  Rows reduce();
  /// Returns `otherwise` [1, P] when the weights sum to 0.
  Rows reduce(const Rows& otherwise);

 private:
  void require_equal(double total, double largest) const;

  MeanServices services_;
  LoggedSum sum_;
  double largest_ = 0;  // of the weights so far
};

/// Takes a weighted mean of each column over the clients that have sent it.
class ColumnMean {
 public:
  explicit ColumnMean(const MeanServices& services);

  /// Adds weights[c] * rows[c, i] wherever sent[c, i]; `sent` [C, P] is of type bool.
  void add(std::span<const double> weights, const Rows& rows, const Tensor& sent);

  /// Returns the mean over all ranks, [1, P]. A column whose senders' weights sum to 0 is that of
  /// `otherwise` [1, P]. Collective; call it once.
  Rows reduce(const Rows& otherwise);

 private:
  MeanServices services_;
  LoggedSum sum_;  // of P values and P weights
};

/// Takes a weighted mean of rows within every edge. Ranks of different edges exchange nothing.
class EdgeMean {
 public:
  explicit EdgeMean(const MeanServices& services);

  /// Adds weights[c] * rows[c] to the mean of edges[c], one of this rank's.
  void add(std::span<const std::int64_t> edges, std::span<const double> weights, const Rows& rows);

  /// Returns the mean of each of this rank's edges; zeros where the weights sum to 0, so that an
  /// edge without participants stays where it is. Collective within the edge; call it once.
  EdgeRows reduce();
  /// Returns the edge's row of `otherwise` where the weights sum to 0.
  EdgeRows reduce(const EdgeRows& otherwise);

 private:
  MeanServices services_;
  LoggedSum sum_;
};

/// Divides sums by weights, [S, P + 1] float64 -> [S, P] in `type`, where the sums lie. A weight of
/// 0 gives the row of `otherwise` [S, P], or zeros where it is undefined.
Tensor quotients(const Tensor& sums, at::ScalarType type, const Tensor& otherwise = {});

}  // namespace fedhpc
