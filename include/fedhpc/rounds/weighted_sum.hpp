#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {

class SideStream;

/// The addends of a weighted sum so far.
struct SumContents {
  struct Addend {
    std::vector<std::int64_t> segments;  // [C]
    std::vector<double> weights;         // [C]
    Tensor rows;                         // [C, P]
  };

  Tensor sums{};                       ///< [S, P + 1] float64, of Summation::Fast
  std::vector<Addend> addends{};       ///< of Summation::Reproducible
  std::shared_ptr<SideStream> side{};  ///< of Summation::Fast on a device
  at::Device device = at::kCPU;

  /// Returns a copy in memory of its own.
  std::shared_ptr<SumContents> copy() const;
  /// Takes over the numbers of another sum of the same shape, which may lie on another device.
  void assign(const SumContents& other);
};

/// Sums weighted rows over clients and ranks in S segments: one for a mean over everybody, one per
/// edge for means within edges. Rows on a device are summed there, beside what is enqueued after
/// they were added. They must stay as they are until the sum is taken.
///
/// Summation::Fast: block sums in the rows' number type, the accumulator in float64, O(P) memory.
///
/// Summation::Reproducible: all rows are held until the sum is taken. With e the largest binary
/// exponent of any w x of the segment on any rank (|w x| < 2^e), every w x, a product in float64,
/// is scaled by 2^(40 - e) and rounded to the nearest int64 (halves to even); what that leaves is
/// scaled by 2^40 and rounded again. Both are summed as integers: a column whose addends are
/// smaller than others' by 2^40 keeps 40 bits. So are the weights, rounded once, with an exponent of
/// their own. Sums of up to 2^23 rows are exact. What is not finite is summed apart: a column with an
/// infinite or undefined addend gets what floating-point addition would give.
class WeightedSum {
 public:
  /// `device` is where the rows lie.
  WeightedSum(std::int64_t segments, std::int64_t columns, Summation summation,
              at::Device device = at::kCPU);

  /// Adds weights[c] * rows[c] to segment segments[c]; a row of weight 0 is not read.
  void add(std::span<const std::int64_t> segments, std::span<const double> weights,
           const Tensor& rows);  // [C, P] float32 or float64

  /// Returns the sums over all rows and over the ranks named, [S, P + 1] float64 where the rows
  /// lie. The last column is the sum of weights. Collective; call it once. Ranks not named get
  /// their own sums.
  Tensor total(Topology& topology, Among ranks);

  /// The addends so far, for those who put them aside.
  const std::shared_ptr<SumContents>& contents() const { return contents_; }

 private:
  template <typename T>
  void add_fast(std::int64_t segment, std::span<const std::int64_t> members,
                std::span<const double> weights, const Tensor& rows);
  void add_on_device(std::span<const std::int64_t> segments, std::span<const double> weights,
                     const Tensor& rows);
  Tensor exact_total(Topology& topology, Among ranks) const;
  Tensor exact_total_on_device(Topology& topology, Among ranks) const;

  std::int64_t segments_;
  std::int64_t columns_;
  Summation summation_;
  at::Device device_;
  std::shared_ptr<SumContents> contents_ = std::make_shared<SumContents>();
};

}  // namespace fedhpc
