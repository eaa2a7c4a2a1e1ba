#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fedhpc {

/// Numbers sorted into clusters, each with a centre.
template <typename T>
struct Clusters {
  std::vector<T> centres;                ///< [m], ascending, no two with the same bits
  std::vector<std::int32_t> assignment;  ///< [n], the cluster of every number
  std::vector<std::int64_t> counts;      ///< [m], numbers in every cluster, at least 1
  double distortion = 0;                 ///< sum_i (x_i - c_a(i))^2
};

/// k-means finds at most k centres of numbers with the least sum of squares to the nearest one. It
/// depends on the values alone, without draws. Sums are float64, a centre is rounded once.
///
/// - With no more than k distinct values, told apart by their bits, each is its own centre, bit for
///   bit; -0, infinities and NaN too (-0 below +0, NaN beyond the infinities of its sign).
/// - With more, -0 counts as +0, and there are min(k, distinct values) centres. The clusters are
///   optimal to the rounding of the sums, for any k: a shortest path over the sorted distinct
///   values (Wu, "Optimal quantization by matrix searching", J. Algorithms 1991), at a price for
///   each cluster that makes k the best number of them. A few passes of O(m log m).
/// - Of optimal clusters those are taken whose upper ones begin lowest.
/// - More than k distinct values with an infinity or a NaN among them have one centre, NaN, and a
///   distortion of NaN: a row that diverges is seen to.
///
/// Throws std::logic_error unless k >= 1 and there are fewer than 2^31 values. No values give no
/// centres.
Clusters<float> kmeans(std::span<const float> values, std::int64_t k);
Clusters<double> kmeans(std::span<const double> values, std::int64_t k);

}  // namespace fedhpc
