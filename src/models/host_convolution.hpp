#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/models/window.hpp"

#include "models/places_alike.hpp"
#include "models/winograd.hpp"

namespace fedhpc {

/// Images of one client's batch, each [channels, height, width] without a gap.
template <typename T>
struct Images {
  T* data = nullptr;
  std::int64_t stride = 0;  // from one image to the next
  std::int64_t batch = 0;
};

/// The three products of a convolution on the host, y[o] = sum over i of W[o, i] * x[i] + b[o] with
/// W [out, in, kh, kw]. Images are copied with their channels side by side, a few at a time; every
/// product then reads its factors where they lie. What is made of an image does not depend on the
/// others.
class HostConvolution {
 public:
  /// False for images so large that LibTorch's kernels have to do.
  static bool takes(const ImageShape& in, const ImageShape& out);

  HostConvolution(const ImageShape& in, const ImageShape& out, const Window& window);

  /// `bias` [out] may be null.
  template <typename T>
  void forward(const Images<const T>& x, const T* weights, const T* bias, const Images<T>& y) const;

  /// dX = the sum over o of W[o] turned * dY[o], where dx has data; and, where `weight_gradient`
  /// [out, in, kh, kw] is not null, the gradient of W.
  template <typename T>
  void backward(const Images<const T>& x, const Images<const T>& dy, const T* weights,
                const Images<T>& dx, T* weight_gradient) const;

 private:
  template <typename T>
  std::int64_t images_at_once(std::int64_t batch) const;
  template <typename T>
  void give_sums(const T* sums, T* weight_gradient) const;

  ImageShape in_;
  ImageShape out_;
  std::int64_t taps_;
  std::vector<PlacesAlike> outputs_;  // both empty where tiles pay
  std::vector<PlacesAlike> inputs_;
  std::optional<Winograd> fast_outputs_;  // where tiles pay
  std::optional<Winograd> fast_inputs_;
};

}  // namespace fedhpc
