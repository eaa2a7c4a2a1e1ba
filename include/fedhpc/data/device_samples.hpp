#pragma once

#include <array>
#include <cstdint>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/data/augment.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/device_kernels.hpp"
#include "fedhpc/data/preparation.hpp"

namespace fedhpc {

/// Holds samples in a device's memory as they lie in the host's (pixels as bytes). It puts each
/// into a batch there: picked, cropped, standardised with the same numbers as on the host. Costs a
/// copy to the device once; gathering is one enqueued kernel.
class DeviceSamples {
 public:
  /// `table` has the standardised value of each pixel where the rule is not by column.
  DeviceSamples(const Samples& samples, const Preparation& preparation,
                const std::array<double, 256>& table, const ImageShape& image, at::Device device);

  /// features[c, b] and targets[c, b] become sample picks[*step, c, b].
  void gather(const Tensor& picks,           // [S, >= C, >= B, 3] int64: DevicePick, contiguous
              const Tensor& step,            // [1] int64
              const Tensor& features,        // [C, B, D]
              const Tensor& targets) const;  // [C, B] or [C, B, T]
  /// features[0, b] and targets[b] become sample first + b.
  void gather(std::int64_t first, const Tensor& features, const Tensor& targets) const;

  std::int64_t bytes() const;

 private:
  std::int64_t target_words() const;  // of a sample

  Tensor features_;  // [S, D]
  Tensor targets_;   // [S] or [S, T]
  Tensor table_;     // [256] float64
  Tensor mean_;      // [D] float64, or undefined
  Tensor factor_;    // [D] float64, or undefined
  ImageShape image_;
};

}  // namespace fedhpc
