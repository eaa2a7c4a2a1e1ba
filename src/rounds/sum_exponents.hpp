#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/ops/full.h>

#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {

/// Collects what all ranks must know of an exact sum before they take it. For each segment these
/// are the exponents of its addends and of its weights, and a mark that an addend is not finite.
class SumExponents {
 public:
  /// An addend is two integers of so many bits: what its scaled value rounds to and, scaled by
  /// 2^kBits again, what that leaves (docs/semantics.md, 5).
  static constexpr std::int64_t kBits = 40;
  static constexpr double kOfRest = 1LL << kBits;

  explicit SumExponents(std::int64_t segments)
      : agreed_(at::full({segments, kEntries}, kLowest, at::kLong)),
        entries_(agreed_.data_ptr<std::int64_t>()) {}

  /// Notes a row of a segment: its weight and the largest magnitude of its addends.
  /// `largest_finite()` is that of the finite ones, asked for where the largest is not.
  template <typename LargestFinite>
  void note(std::int64_t segment, double weight, double largest,
            const LargestFinite& largest_finite) {
    std::int64_t* entry = entries_ + kEntries * segment;
    if (!std::isfinite(largest)) {
      entry[2] = 1;
      largest = largest_finite();
    }
    entry[0] = std::max(entry[0], exponent_of(largest));
    entry[1] = std::max(entry[1], exponent_of(std::abs(weight)));
  }

  /// Agrees on the largest exponents over these ranks. Collective.
  void agree(Topology& topology, Among ranks) {
    topology.max_(ranks, agreed_);
    entries_ = agreed_.data_ptr<std::int64_t>();
    for (std::int64_t s = 0; s < agreed_.size(0); ++s) {
      all_finite_ = all_finite_ && entries_[kEntries * s + 2] != 1;
    }
  }

  bool all_finite() const { return all_finite_; }
  /// The factor on addends, or weights, before they are rounded to integers: a power of two.
  double scale(std::int64_t segment) const { return scale_of(entries_[kEntries * segment]); }
  double weight_scale(std::int64_t segment) const {
    return scale_of(entries_[kEntries * segment + 1]);
  }

 private:
  static constexpr std::int64_t kEntries = 3;
  static constexpr std::int64_t kLowest = -900;  // 2^(kBits - e) stays finite

  static std::int64_t exponent_of(double magnitude) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    return magnitude == 0 ? kLowest : std::max<std::int64_t>(exponent, kLowest);
  }
  static double scale_of(std::int64_t exponent) {
    return std::ldexp(1.0, static_cast<int>(kBits - exponent));
  }

  Tensor agreed_;  // [S, kEntries]
  std::int64_t* entries_;
  bool all_finite_ = true;
};

}  // namespace fedhpc
