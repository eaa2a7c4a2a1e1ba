#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/models/window.hpp"

namespace fedhpc {

/// Convolutions of 3x3 windows by 16 products where 36 were: A. Lavin, S. Gray, "Fast Algorithms for
/// Convolutional Neural Networks", CVPR 2016, F(2x2, 3x3). For each tile of 2x2 outputs y, the 4x4
/// inputs d that they see and the window g:
///
///   y  = A^T [ (G g G^T) * (B^T d B) ] A
///   dg = G^T [ (A dy A^T) * (B^T d B) ] G
///
/// `*` multiplies number by number, and sums run over channels, in the last line over tiles. Inputs
/// outside the image are 0. Images lie with their channels side by side, [height, width, channels].
/// What is made of an image does not depend on the others.
class Winograd {
 public:
  /// Whether it takes these images, and in fewer products than `direct`, those of one input channel
  /// with one output channel.
  static bool pays(const ImageShape& in, const ImageShape& out, const Window& window,
                   std::int64_t direct);

  /// `padding`: places of zeros above and left of the inputs.
  Winograd(const ImageShape& in, const ImageShape& out, Sides padding);

  /// G g G^T of the windows g [inputs, outputs, 3, 3], whose strides are given, in blocks of
  /// kTileChannels outputs: [blocks, 16, inputs, kTileChannels]. Of turned windows the last tap comes
  /// first.
  template <typename T>
  std::vector<T> weights(const T* g, std::int64_t input_stride, std::int64_t output_stride,
                         bool turned) const;

  /// y [images, height, width, outputs] of x [images, height, width, inputs].
  template <typename T>
  void product(const T* x, std::int64_t images, const std::vector<T>& weights, T* y) const;

  /// The numbers of add_sums.
  template <typename T>
  std::int64_t sums() const;

  /// sums [blocks, 16, inputs, kTileChannels] += (A dy A^T) * (B^T d B) of all tiles of the images.
  template <typename T>
  void add_sums(const T* x, const T* dy, std::int64_t images, T* sums) const;

  /// dg [outputs, inputs, 3, 3] = G^T sums G.
  template <typename T>
  void give_sums(const T* sums, T* dg) const;

 private:
  std::int64_t tiles() const { return down_ * across_; }
  template <typename T>
  void seen_by_tiles(const T* x, std::int64_t first, std::int64_t count, T* d) const;
  template <typename T>
  void outputs_of_tiles(const T* m, std::int64_t first, std::int64_t count, std::int64_t channel,
                        T* y) const;
  template <typename T>
  void gradients_of_tiles(const T* dy, std::int64_t first, std::int64_t count, T* m) const;

  ImageShape in_;
  ImageShape out_;
  Sides padding_;
  std::int64_t down_;    // tiles
  std::int64_t across_;  // tiles
};

}  // namespace fedhpc
