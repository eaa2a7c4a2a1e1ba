#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/ops/empty.h>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// What one slice of a convolution's clients may take on a device for what it unfolds.
inline constexpr std::int64_t kScratchBytes = std::int64_t{1} << 30;
/// What all layers of a model may take at most for columns that wait for their weights' gradients.
inline constexpr std::int64_t kKeptBytes = 4 * kScratchBytes;

/// The columns that a convolution has unfolded on its way forward, for its weights' gradient.
class KeptColumns {
 public:
  /// The bytes that the layers of a model keep, and may keep.
  struct Room {
    std::int64_t kept = 0;
    std::int64_t most = kKeptBytes;
  };
  using Total = std::shared_ptr<Room>;

  KeptColumns() = default;
  ~KeptColumns() { drop(); }
  KeptColumns(const KeptColumns&) = delete;
  KeptColumns& operator=(const KeptColumns&) = delete;

  /// Memory for the columns of these images; undefined where the model keeps as much as it may.
  Tensor make(const Tensor& images, at::IntArrayRef shape, const Total& total) {
    drop();
    const std::int64_t bytes = c10::multiply_integers(shape) * images.itemsize();
    if (total->kept + bytes > total->most) return {};
    columns_ = at::empty(shape, images.options());
    images_ = images.const_data_ptr();
    total_ = total;
    total_->kept += bytes;
    return columns_;
  }
  /// The columns of these images, of this shape; undefined where they are not kept.
  Tensor of(const Tensor& images, at::IntArrayRef shape) const {
    const bool here = columns_.defined() && images_ == images.const_data_ptr();
    return here && columns_.sizes() == shape ? columns_ : Tensor();
  }
  void drop() {
    if (columns_.defined()) total_->kept -= static_cast<std::int64_t>(columns_.nbytes());
    columns_ = Tensor();
  }

 private:
  Tensor columns_;
  const void* images_ = nullptr;
  Total total_;
};

}  // namespace fedhpc
