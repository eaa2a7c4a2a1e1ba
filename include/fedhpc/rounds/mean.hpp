#pragma once

#include <span>

#include "fedhpc/core/stopwatch.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/edge_rows.hpp"
#include "fedhpc/rounds/round_log.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/rounds/weighted_sum.hpp"

namespace fedhpc {

/// What a mean works with.
struct MeanServices {
  Topology& topology;
  LayoutPtr layout;
  Context context;
  Stopwatch& watch;
  RoundLog* log = nullptr;  ///< of the round the mean belongs to; null: of none
};

/// A weighted sum as a round knows it.
class LoggedSum {
 public:
  LoggedSum(const MeanServices& services, std::int64_t segments);

  WeightedSum& operator*() { return sum_; }
  WeightedSum* operator->() { return &sum_; }
  /// What `of_sums` makes of the sums over these ranks, [S, P]; `blank()` where the round is left.
  Tensor take(const MeanServices& services, Among ranks,
              const std::function<Tensor(const Tensor&)>& of_sums,
              const std::function<Tensor()>& blank);

 private:
  WeightedSum sum_;
  std::size_t place_ = 0;  // in the log
};

/// A weighted mean of rows over all clients of all ranks: one accumulator, one allreduce of P sums
/// and the weight.
class Mean {
 public:
  explicit Mean(const MeanServices& services);

  /// Adds weights[c] * rows[c] for every client c of the rows, which stay as they are until
  /// reduce() (see WeightedSum).
  void add(std::span<const double> weights, const Rows& rows);

  /// The mean over all ranks, [1, P]; zeros when the weights sum to 0. Collective; to be called
  /// once.
  Rows reduce();
  /// The same with `otherwise` [1, P] in the place of a mean of nobody.
  Rows reduce(const Rows& otherwise);

 private:
  MeanServices services_;
  LoggedSum sum_;
};

/// A weighted mean of rows, column by column over the clients that have sent the column.
class ColumnMean {
 public:
  explicit ColumnMean(const MeanServices& services);

  /// Adds weights[c] * rows[c, i] wherever sent[c, i]; `sent` [C, P] is of type bool.
  void add(std::span<const double> weights, const Rows& rows, const Tensor& sent);

  /// The mean over all ranks, [1, P]; in columns that nobody has sent, or nobody that weighs
  /// anything, that of `otherwise` [1, P]. Collective; to be called once.
  Rows reduce(const Rows& otherwise);

 private:
  MeanServices services_;
  LoggedSum sum_;  // of P values and P weights
};

/// A weighted mean of rows within every edge. Ranks of different edges exchange nothing.
class EdgeMean {
 public:
  explicit EdgeMean(const MeanServices& services);

  /// Adds weights[c] * rows[c] to the mean of edges[c], one of this rank's.
  void add(std::span<const std::int64_t> edges, std::span<const double> weights, const Rows& rows);

  /// The mean of each of this rank's edges; a row of zeros where the weights sum to 0, so that an
  /// edge without participants stays where it is. Collective within the edge; to be called once.
  EdgeRows reduce();
  /// The same with the edge's row of `otherwise` in the place of a mean of nobody.
  EdgeRows reduce(const EdgeRows& otherwise);

 private:
  MeanServices services_;
  LoggedSum sum_;
};

/// Sums and weights [S, P + 1] float64 -> their quotients [S, P] in `type`, for a weight of 0 the
/// row of `otherwise` [S, P], or zeros where it is undefined; where the sums lie.
Tensor quotients(const Tensor& sums, at::ScalarType type, const Tensor& otherwise = {});

}  // namespace fedhpc
