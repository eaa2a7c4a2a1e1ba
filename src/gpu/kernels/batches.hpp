#pragma once

#include "fedhpc/data/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

/// One sample on its way into a batch: picked, cropped, standardised.
template <typename T, int N>
struct Gather {
  DeviceGather of;
  Samples<T> inputs;
  Divisor batch;
  Divisor width;   // of an image
  Divisor places;  // of an image

  explicit Gather(const DeviceGather& gather)
      : of(gather),
        inputs(gather.inputs),
        batch(gather.inputs.batch),
        width(gather.image_width),
        places(gather.height * gather.image_width) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const Split at = batch(g);
    const DevicePick pick = pick_of(at.quotient, at.rest);
    if (pick.row < 0) return;
    const auto* told = static_cast<const std::int32_t*>(of.source_targets);
    auto* targets = static_cast<std::int32_t*>(of.targets) + at.quotient * of.target_stride +
                    at.rest * of.target_words;
    for (std::int64_t i = group.rank(); i < of.target_words; i += group.size()) {
      targets[i] = told[pick.row * of.target_words + i];
    }
    T* out = inputs(at.quotient, at.rest);
    const std::int64_t features = of.inputs.width;
    if (of.pixels) {
      const auto* pixels = static_cast<const std::uint8_t*>(of.source) + pick.row * features;
      for (std::int64_t i = group.rank(); i < features / N; i += group.size()) {
        Pack<T, N> pack;
        for (int k = 0; k < N; ++k) {
          const std::int64_t d = i * N + k;
          const std::int64_t from = place(pick, d);
          pack.value[k] = standardised(from < 0 ? std::uint8_t{0} : pixels[from], d);
        }
        store(out + i * N, pack);
      }
    } else {
      const T* values = static_cast<const T*>(of.source) + pick.row * features;
      for (std::int64_t d = group.rank(); d < features; d += group.size()) {
        const std::int64_t from = place(pick, d);
        out[d] = from < 0 ? T{0} : values[from];
      }
    }
  }

 private:
  FEDHPC_KERNEL DevicePick pick_of(std::int64_t c, std::int64_t b) const {
    if (of.picks == nullptr) return {of.first + b, kWhole, kWhole, 0, 0};
    const std::int64_t step = of.step == nullptr ? 0 : *of.step;
    return of.picks[(step * of.pick_clients + c) * of.pick_batch + b];
  }

  /// Where value d of the crop lies in the image; below 0: in the zeros around it.
  FEDHPC_KERNEL std::int64_t place(const DevicePick& pick, std::int64_t d) const {
    if (of.channels == 0) return d;
    const Split by_channel = places(d);
    const Split by_row = width(by_channel.rest);
    const std::int64_t x = pick.flip != 0 ? of.image_width - 1 - by_row.rest : by_row.rest;
    const std::int64_t row = by_row.quotient + pick.crop_row - kWhole;
    const std::int64_t column = x + pick.crop_column - kWhole;
    const bool inside = 0 <= row && row < of.height && 0 <= column && column < of.image_width;
    return inside ? (by_channel.quotient * of.height + row) * of.image_width + column : -1;
  }

  FEDHPC_KERNEL T standardised(std::uint8_t pixel, std::int64_t d) const {
    if (of.mean == nullptr) return static_cast<T>(of.table[pixel]);
    return static_cast<T>((static_cast<double>(pixel) - of.mean[d]) * of.factor[d]);
  }

  static constexpr std::int32_t kWhole = 4;  // the zeros on each side (data/augment.hpp)
};

}  // namespace fedhpc::kernels
