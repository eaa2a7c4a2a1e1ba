#include "models/host_convolution.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// Copies of so many bytes stay in the second cache.
constexpr std::int64_t kBytesAtOnce = 256 << 10;

/// A plan keeps numbers of every place.
constexpr std::int64_t kMostPlaces = 1 << 22;

std::int64_t rounded_up(std::int64_t number, std::int64_t unit) {
  return (number + unit - 1) / unit * unit;
}

/// The offsets in several images that lie one after the other.
std::vector<std::int32_t> in_images(std::span<const std::int32_t> offsets, std::int64_t factor,
                                    std::int64_t images, std::int64_t values) {
  std::vector<std::int32_t> all;
  all.reserve(offsets.size() * static_cast<std::size_t>(images));
  for (std::int64_t b = 0; b < images; ++b) {
    for (const std::int32_t offset : offsets) {
      all.push_back(static_cast<std::int32_t>(b * values + offset * factor));
    }
  }
  return all;
}

/// [channels, places] of each image to [places, channels].
template <typename T>
void copy_images(const Images<const T>& images, const ImageShape& shape, T* copy) {
  for (std::int64_t b = 0; b < images.batch; ++b, copy += shape.values()) {
    const T* image = images.data + b * images.stride;
    if (shape.channels == 1) {
      std::copy_n(image, shape.values(), copy);
    } else {
      transpose(image, shape.places(), shape.channels, shape.places(), copy, shape.channels);
    }
  }
}

template <typename T>
Images<T> some(const Images<T>& images, std::int64_t first, std::int64_t count) {
  if (images.data == nullptr) return {};
  return {images.data + first * images.stride, images.stride, count};
}

/// Weights in blocks of `outer` channels: [blocks, taps, inner, kTileChannels].
template <typename T>
std::vector<T> packed(const T* weights, std::int64_t taps, std::int64_t inner,
                      std::int64_t inner_stride, std::int64_t outer, std::int64_t outer_stride,
                      bool last_tap_first) {
  std::vector<T> all(static_cast<std::size_t>(rounded_up(outer, kTileChannels<T>) * taps * inner));
  T* block = all.data();
  for (std::int64_t first = 0; first < outer; first += kTileChannels<T>) {
    const std::int64_t width = std::min(kTileChannels<T>, outer - first);
    for (std::int64_t i = 0; i < inner; ++i) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const T* from = weights + i * inner_stride + first * outer_stride + t;
        T* to = block + ((last_tap_first ? taps - 1 - t : t) * inner + i) * kTileChannels<T>;
        for (std::int64_t o = 0; o < width; ++o) to[o] = from[o * outer_stride];
      }
    }
    block += taps * inner * kTileChannels<T>;
  }
  return all;
}

/// y [batch, shape] = what the places of all parts see of `copy` times the weights, plus the bias.
template <typename T>
void apply(const std::vector<PlacesAlike>& parts, const T* copy, const ImageShape& seen,
           const std::vector<T>& weights, const T* bias, const ImageShape& shape,
           const Images<T>& y) {
  const std::int64_t stride = std::ssize(weights) / rounded_up(shape.channels, kTileChannels<T>);
  const std::int64_t values = shape.places() * kTileChannels<T>;
  std::vector<T> block(static_cast<std::size_t>(y.batch * values));  // [batch, places, channels]
  for (std::int64_t first = 0; first < shape.channels; first += kTileChannels<T>) {
    const std::int64_t width = std::min(kTileChannels<T>, shape.channels - first);
    for (const PlacesAlike& part : parts) {
      windows_product<T>(copy, in_images(part.pixels, 1, y.batch, seen.values()), part.runs,
                         weights.data() + first * stride, width, block.data(),
                         in_images(part.places, kTileChannels<T>, y.batch, values));
    }
    for (std::int64_t b = 0; b < y.batch; ++b) {
      T* planes = y.data + b * y.stride + first * shape.places();
      transpose(block.data() + b * values, kTileChannels<T>, shape.places(), width, planes,
                shape.places());
      for (std::int64_t o = 0; bias != nullptr && o < width; ++o) {
        T* plane = planes + o * shape.places();
        for (std::int64_t p = 0; p < shape.places(); ++p) plane[p] += bias[first + o];
      }
    }
  }
}

}  // namespace

bool HostConvolution::takes(const ImageShape& in, const ImageShape& out) {
  return std::max(in.values(), out.values()) <= std::numeric_limits<std::int32_t>::max() &&
         std::max(in.places(), out.places()) <= kMostPlaces;
}

HostConvolution::HostConvolution(const ImageShape& in, const ImageShape& out, const Window& window)
    : in_(in),
      out_(out),
      taps_(window.size.product()),
      outputs_(outputs_alike(in, out, window)),
      inputs_(inputs_alike(in, out, window)) {
  require(takes(in, out), "images are of a size that the host's own kernels take");
}

template <typename T>
std::int64_t HostConvolution::images_at_once(std::int64_t batch) const {
  const std::int64_t largest = std::max(in_.values(), out_.values());
  const auto room = kBytesAtOnce / static_cast<std::int64_t>(sizeof(T)) / largest;
  return std::clamp<std::int64_t>(room, 1, std::max<std::int64_t>(batch, 1));
}

template <typename T>
void HostConvolution::forward(const Images<const T>& x, const T* weights, const T* bias,
                              const Images<T>& y) const {
  const std::int64_t at_once = images_at_once<T>(x.batch);
  const std::vector<T> packed_weights =
      packed(weights, taps_, in_.channels, taps_, out_.channels, in_.channels * taps_,
             /*last_tap_first=*/false);
  std::vector<T> copy(static_cast<std::size_t>(at_once * in_.values()));
  for (std::int64_t first = 0; first < x.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, x.batch - first);
    copy_images(some(x, first, count), in_, copy.data());
    apply(outputs_, copy.data(), in_, packed_weights, bias, out_, some(y, first, count));
  }
}

/// sums[block of output channels, tap, i, o] += the products of input channel i and output channel
/// o over all places.
template <typename T>
void HostConvolution::add_sums(const T* inputs, const T* outputs, std::int64_t images,
                               T* sums) const {
  for (const PlacesAlike& part : outputs_) {
    const auto pixels = in_images(part.pixels, 1, images, in_.values());
    const auto own = in_images(part.places, out_.channels, images, out_.values());
    for (std::int64_t first = 0; first < out_.channels; first += kTileChannels<T>) {
      windows_sums<T>(inputs, pixels, part.runs, outputs + first, own,
                      std::min(kTileChannels<T>, out_.channels - first),
                      sums + first * taps_ * in_.channels);
    }
  }
}

template <typename T>
void HostConvolution::give_sums(const T* sums, T* weight_gradient) const {
  for (std::int64_t o = 0; o < out_.channels; ++o) {
    const std::int64_t lane = o % kTileChannels<T>;
    const T* column = sums + (o - lane) * taps_ * in_.channels + lane;
    for (std::int64_t i = 0; i < in_.channels; ++i) {
      for (std::int64_t t = 0; t < taps_; ++t) {
        *weight_gradient++ = column[(t * in_.channels + i) * kTileChannels<T>];
      }
    }
  }
}

template <typename T>
void HostConvolution::backward(const Images<const T>& x, const Images<const T>& dy,
                               const T* weights, const Images<T>& dx, T* weight_gradient) const {
  const std::int64_t at_once = images_at_once<T>(dy.batch);
  // Behind the last place, whole vectors are read.
  std::vector<T> gradients(static_cast<std::size_t>(at_once * out_.values() + kTileChannels<T>));
  std::vector<T> inputs;
  std::vector<T> sums;
  std::vector<T> packed_weights;
  if (weight_gradient != nullptr) {
    inputs.resize(static_cast<std::size_t>(at_once * in_.values()));
    sums.resize(static_cast<std::size_t>(rounded_up(out_.channels, kTileChannels<T>) * taps_ *
                                         in_.channels));
  }
  if (dx.data != nullptr) {
    packed_weights = packed(weights, taps_, out_.channels, in_.channels * taps_, in_.channels,
                            taps_, /*last_tap_first=*/true);
  }
  for (std::int64_t first = 0; first < dy.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, dy.batch - first);
    copy_images(some(dy, first, count), out_, gradients.data());
    if (weight_gradient != nullptr) {
      copy_images(some(x, first, count), in_, inputs.data());
      add_sums(inputs.data(), gradients.data(), count, sums.data());
    }
    if (dx.data != nullptr) {
      apply<T>(inputs_, gradients.data(), out_, packed_weights, nullptr, in_,
               some(dx, first, count));
    }
  }
  if (weight_gradient != nullptr) give_sums(sums.data(), weight_gradient);
}

template void HostConvolution::forward(const Images<const float>&, const float*, const float*,
                                       const Images<float>&) const;
template void HostConvolution::forward(const Images<const double>&, const double*, const double*,
                                       const Images<double>&) const;
template void HostConvolution::backward(const Images<const float>&, const Images<const float>&,
                                        const float*, const Images<float>&, float*) const;
template void HostConvolution::backward(const Images<const double>&, const Images<const double>&,
                                        const double*, const Images<double>&, double*) const;

}  // namespace fedhpc
