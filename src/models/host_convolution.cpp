#include "models/host_convolution.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

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

/// The offsets of places alike in several images that lie one after the other: those of fewer
/// images come first.
struct InImages {
  const PlacesAlike& part;
  std::vector<std::int32_t> pixels;
  std::vector<std::int32_t> places;

  std::span<const std::int32_t> first(const std::vector<std::int32_t>& offsets,
                                      std::int64_t images) const {
    return std::span(offsets).first(static_cast<std::size_t>(images) * part.places.size());
  }
};

/// Images that are seen have `seen` values; others have rows of `row` values, one for each place.
std::vector<InImages> in_images(const std::vector<PlacesAlike>& parts, std::int64_t images,
                                std::int64_t seen, std::int64_t row, std::int64_t places) {
  std::vector<InImages> all;
  for (const PlacesAlike& part : parts) {
    InImages of{.part = part, .pixels = {}, .places = {}};
    for (std::int64_t b = 0; b < images; ++b) {
      for (std::size_t n = 0; n < part.places.size(); ++n) {
        of.pixels.push_back(static_cast<std::int32_t>(b * seen + part.pixels[n]));
        of.places.push_back(static_cast<std::int32_t>((b * places + part.places[n]) * row));
      }
    }
    all.push_back(std::move(of));
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

/// The weights of a product, and how far apart those of its channels are.
template <typename T>
struct WeightsOf {
  const T* data;
  std::int64_t taps;
  std::int64_t inner_stride;
  std::int64_t outer_stride;
  bool last_tap_first;
};

/// y [batch, shape] = what its places see of other images times the weights, plus the bias, for up
/// to `images` images at a time.
template <typename T>
class Product {
 public:
  Product(const std::vector<PlacesAlike>& parts, const std::optional<Winograd>& fast,
          const ImageShape& seen, const ImageShape& shape, const WeightsOf<T>& of,
          std::int64_t images)
      : fast_(fast),
        shape_(shape),
        row_(fast ? shape.channels : kTileChannels<T>),
        block_(static_cast<std::size_t>(images * shape.places() * row_)) {
    if (fast) {
      weights_ = fast->weights(of.data, of.inner_stride, of.outer_stride, of.last_tap_first);
      return;
    }
    parts_ = in_images(parts, images, seen.values(), row_, shape.places());
    weights_ = packed(of.data, of.taps, seen.channels, of.inner_stride, shape.channels,
                      of.outer_stride, of.last_tap_first);
  }

  void make(const T* copy, const T* bias, const Images<T>& y) {
    if (fast_) fast_->product(copy, y.batch, weights_, block_.data());
    for (std::int64_t first = 0; first < shape_.channels; first += kTileChannels<T>) {
      const std::int64_t width = std::min(kTileChannels<T>, shape_.channels - first);
      if (!fast_) make_block(copy, first, width, y.batch);
      const T* made = block_.data() + (fast_ ? first : 0);
      for (std::int64_t b = 0; b < y.batch; ++b) {
        T* planes = y.data + b * y.stride + first * shape_.places();
        transpose(made + b * shape_.places() * row_, row_, shape_.places(), width, planes,
                  shape_.places());
        for (std::int64_t o = 0; bias != nullptr && o < width; ++o) {
          T* plane = planes + o * shape_.places();
          for (std::int64_t p = 0; p < shape_.places(); ++p) plane[p] += bias[first + o];
        }
      }
    }
  }

 private:
  void make_block(const T* copy, std::int64_t first, std::int64_t width, std::int64_t images) {
    const std::int64_t of_channel =
        std::ssize(weights_) / rounded_up(shape_.channels, kTileChannels<T>);
    for (const InImages& of : parts_) {
      windows_product<T>(copy, of.first(of.pixels, images), of.part.runs,
                         weights_.data() + first * of_channel, width, block_.data(),
                         of.first(of.places, images));
    }
  }

  const std::optional<Winograd>& fast_;
  ImageShape shape_;
  std::int64_t row_;  // of a place in the block
  std::vector<InImages> parts_;
  std::vector<T> weights_;
  std::vector<T> block_;  // [images, places, row]
};

/// The products of one input channel with one output channel.
std::int64_t products_of(const std::vector<PlacesAlike>& parts, const ImageShape& seen) {
  std::int64_t products = 0;
  for (const PlacesAlike& part : parts) {
    for (const Run& run : part.runs) products += std::ssize(part.places) * run.length;
  }
  return products / seen.channels;
}

/// sums[block of output channels, tap, i, o] += the products of input channel i and output channel
/// o over all places of `images` images.
template <typename T>
void add_sums(const std::vector<InImages>& parts, const T* inputs, const T* outputs,
              std::int64_t images, std::int64_t channels, std::int64_t of_channel, T* sums) {
  for (const InImages& of : parts) {
    for (std::int64_t first = 0; first < channels; first += kTileChannels<T>) {
      windows_sums<T>(inputs, of.first(of.pixels, images), of.part.runs, outputs + first,
                      of.first(of.places, images), std::min(kTileChannels<T>, channels - first),
                      sums + first * of_channel);
    }
  }
}

}  // namespace

bool HostConvolution::takes(const ImageShape& in, const ImageShape& out) {
  return std::max(in.values(), out.values()) <= std::numeric_limits<std::int32_t>::max() &&
         std::max(in.places(), out.places()) <= kMostPlaces;
}

HostConvolution::HostConvolution(const ImageShape& in, const ImageShape& out, const Window& window)
    : in_(in), out_(out), taps_(window.size.product()), outputs_(outputs_alike(in, out, window)) {
  require(takes(in, out), "images are of a size that the host's own kernels take");
  if (!Winograd::pays(in, out, window, products_of(outputs_, in))) {
    inputs_ = inputs_alike(in, out, window);
    return;
  }
  outputs_.clear();  // tiles need no places alike
  fast_outputs_.emplace(in, out, window.padding);
  fast_inputs_.emplace(out, in, Sides(2 - window.padding.height, 2 - window.padding.width));
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
  Product<T> product(outputs_, fast_outputs_, in_, out_,
                     {weights, taps_, taps_, in_.channels * taps_, /*last_tap_first=*/false},
                     at_once);
  std::vector<T> copy(static_cast<std::size_t>(at_once * in_.values()));
  for (std::int64_t first = 0; first < x.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, x.batch - first);
    copy_images(some(x, first, count), in_, copy.data());
    product.make(copy.data(), bias, some(y, first, count));
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
  std::optional<Product<T>> product;
  if (dx.data != nullptr) {
    const WeightsOf<T> of{weights, taps_, in_.channels * taps_, taps_, /*last_tap_first=*/true};
    product.emplace(inputs_, fast_inputs_, out_, in_, of, at_once);
  }
  std::vector<InImages> parts;
  std::vector<T> inputs;
  std::vector<T> sums;
  if (weight_gradient != nullptr) {
    if (!fast_outputs_) {
      parts = in_images(outputs_, at_once, in_.values(), out_.channels, out_.places());
    }
    inputs.resize(static_cast<std::size_t>(at_once * in_.values()));
    sums.resize(static_cast<std::size_t>(
        fast_outputs_ ? fast_outputs_->sums<T>()
                      : rounded_up(out_.channels, kTileChannels<T>) * taps_ * in_.channels));
  }
  for (std::int64_t first = 0; first < dy.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, dy.batch - first);
    copy_images(some(dy, first, count), out_, gradients.data());
    if (weight_gradient != nullptr) {
      copy_images(some(x, first, count), in_, inputs.data());
      if (fast_outputs_) {
        fast_outputs_->add_sums(inputs.data(), gradients.data(), count, sums.data());
      } else {
        add_sums(parts, inputs.data(), gradients.data(), count, out_.channels, taps_ * in_.channels,
                 sums.data());
      }
    }
    if (product) product->make(gradients.data(), nullptr, some(dx, first, count));
  }
  if (weight_gradient == nullptr) return;
  fast_outputs_ ? fast_outputs_->give_sums(sums.data(), weight_gradient)
                : give_sums(sums.data(), weight_gradient);
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
