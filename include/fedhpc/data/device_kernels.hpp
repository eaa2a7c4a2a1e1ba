#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"

// The kernels of this room on a device; fedhpc/core/device_kernels.hpp says what all keep.

namespace fedhpc {

/// A sample's way into a batch: its row in the source and, of an image, the corner of the crop in
/// the padded image and whether it is mirrored ({4, 4, 0}: the image itself).
struct DevicePick {
  std::int64_t row;  ///< negative: there is no such sample, nothing is written
  std::int32_t crop_row;
  std::int32_t crop_column;
  std::int32_t flip;
  std::int32_t unused;
};

/// Gathers batches: sample b of client c of the stack becomes picks[(step clients + c) batch + b]
/// of the source, standardised, with its label or targets.
struct DeviceGather {
  DType type;
  bool pixels = false;                   ///< the source is [S, width] uint8, else of `type`
  const void* source = nullptr;          ///< [S, width]
  const void* source_targets = nullptr;  ///< [S, target_words] of 4 bytes, or null
  /// [steps, pick_clients, pick_batch]; null: sample b of client 0 is row first + b, whole
  const DevicePick* picks = nullptr;
  std::int64_t pick_clients = 0;
  std::int64_t pick_batch = 0;
  const std::int64_t* step = nullptr;  ///< one number
  std::int64_t first = 0;
  /// Pixel x becomes mean ? (x - mean[d]) factor[d] : table[x], in float64, rounded.
  const double* table = nullptr;  ///< [256]
  const double* mean = nullptr;   ///< [width] or null
  const double* factor = nullptr;
  std::int64_t channels = 0;  ///< of images that are cropped, else 0
  std::int64_t height = 0;
  std::int64_t image_width = 0;
  DeviceStack inputs;
  void* targets = nullptr;         ///< [C, B, target_words]
  std::int64_t target_words = 0;   ///< of a sample's labels or targets
  std::int64_t target_stride = 0;  ///< of a client, in words
};

/// What puts batches together on a device.
class DataKernels {
 public:
  virtual ~DataKernels() = default;

  virtual void gather(const DeviceGather&) = 0;
};

}  // namespace fedhpc
