#include "models/winograd.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "models/convolution_tiles.hpp"
#include "models/winograd_tiles.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kNumbers = 16;  // of a tile, 4x4
constexpr std::int64_t kTaps = 9;

/// 0, step, 2 step, ...
std::vector<std::int32_t> rows_of(std::int64_t count, std::int64_t step) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) rows[n] = static_cast<std::int32_t>(n * step);
  return rows;
}

std::span<const std::int32_t> first_of(const std::vector<std::int32_t>& rows, std::int64_t count) {
  return std::span(rows).first(static_cast<std::size_t>(count));
}

}  // namespace

bool Winograd::pays(const ImageShape& in, const ImageShape& out, const Window& window,
                    std::int64_t direct) {
  if (window.size != Sides(3) || window.stride != Sides(1) || window.dilation != Sides(1) ||
      std::max(window.padding.height, window.padding.width) > 2 || in.channels % kChannels != 0 ||
      out.channels % kChannels != 0) {
    return false;
  }
  // Tiles cost sums as well: measured, they are ahead of the products left out from here on.
  constexpr double kPays = 0.7;
  const std::int64_t tiles = (out.height + 1) / 2 * ((out.width + 1) / 2);
  return static_cast<double>(kNumbers * tiles) < kPays * static_cast<double>(direct);
}

Winograd::Winograd(const ImageShape& in, const ImageShape& out, Sides padding)
    : in_(in),
      out_(out),
      padding_(padding),
      down_((out.height + 1) / 2),
      across_((out.width + 1) / 2) {}

template <typename T>
std::vector<T> Winograd::weights(const T* g, std::int64_t input_stride, std::int64_t output_stride,
                                 bool turned) const {
  using V = Vector<T>;
  constexpr std::int64_t kWidth = kTileChannels<T>;
  std::vector<T> all(static_cast<std::size_t>(sums<T>()));
  for (std::int64_t o = 0; o < out_.channels; o += kLanes<T, CommonVectors>) {
    for (std::int64_t i = 0; i < in_.channels; ++i) {
      const T* windows = g + i * input_stride + o * output_stride;
      V tap[kTaps] = {};
      for (int t = 0; t < kTaps; ++t) {
        const T* from = windows + (turned ? kTaps - 1 - t : t);
        for (int l = 0; l < kLanes<T, CommonVectors>; ++l) tap[t][l] = from[l * output_stride];
      }
      V half[3][4];
      V row[4];
      T* to = all.data() + (o / kWidth * kNumbers * in_.channels + i) * kWidth + o % kWidth;
      for (int x = 0; x < 3; ++x) widen(tap[x], tap[3 + x], tap[6 + x], half[x]);
      for (int y = 0; y < 4; ++y) {
        widen(half[0][y], half[1][y], half[2][y], row);
        for (int x = 0; x < 4; ++x, to += in_.channels * kWidth) vector_at<V>(to).value = row[x];
      }
    }
  }
  return all;
}

/// d [16, kTilesAtOnce, inputs] = B^T d B of some tiles.
template <typename T>
void Winograd::seen_by_tiles(const T* x, std::int64_t first, std::int64_t count, T* d) const {
  const std::vector<T> zeros(static_cast<std::size_t>(in_.width * in_.channels));
  while (count > 0) {
    const std::int64_t tile = first % tiles();
    const std::int64_t top = 2 * (tile / across_) - padding_.height;
    const T* image = x + first / tiles() * in_.values();
    TilesOfRow<T> row{.left = 2 * (tile % across_) - padding_.width,
                      .count = std::min(count, across_ - tile % across_),
                      .width = in_.width,
                      .channels = in_.channels};
    for (std::int64_t i = 0; i < 4; ++i) {
      const bool inside = top + i >= 0 && top + i < in_.height;
      row.lines[i] = inside ? image + (top + i) * in_.width * in_.channels : zeros.data();
    }
    if (has_wide_vectors() && in_.channels % kLanes<T, WideVectors> == 0) {
      see_wide(row, d);
    } else {
      see_tiles<T, CommonVectors>(row, d);
    }
    d += row.count * in_.channels;
    first += row.count;
    count -= row.count;
  }
}

/// A^T m A of some tiles' products m [16, kTilesAtOnce, kTileChannels], of a block of channels, goes
/// to y.
template <typename T>
void Winograd::outputs_of_tiles(const T* m, std::int64_t first, std::int64_t count,
                                std::int64_t channel, T* y) const {
  using V = Vector<T>;
  constexpr std::int64_t kWidth = kTileChannels<T>;
  const std::int64_t width = std::min(kWidth, out_.channels - channel);
  for (std::int64_t n = 0; n < count; ++n, m += kWidth) {
    const std::int64_t tile = (first + n) % tiles();
    const std::int64_t top = 2 * (tile / across_);
    const std::int64_t left = 2 * (tile % across_);
    const std::int64_t rows = std::min<std::int64_t>(2, out_.height - top);
    const std::int64_t columns = std::min<std::int64_t>(2, out_.width - left);
    T* to = y + (first + n) / tiles() * out_.values() + (top * out_.width + left) * out_.channels +
            channel;
    for (std::int64_t c = 0; c < width; c += kLanes<T, CommonVectors>) {
      const auto at = [&](int i) -> V {
        return vector_at<V>(m + i * kTilesAtOnce * kWidth + c).value;
      };
      V half[4][2];
      V row[2];
      for (int i = 0; i < 4; ++i) reduce(at(i), at(4 + i), at(8 + i), at(12 + i), half[i]);
      for (int i = 0; i < rows; ++i) {
        reduce(half[0][i], half[1][i], half[2][i], half[3][i], row);
        for (int k = 0; k < columns; ++k) {
          vector_at<V>(to + (i * out_.width + k) * out_.channels + c).value = row[k];
        }
      }
    }
  }
}

/// m [16, kTilesAtOnce, outputs] = A dy A^T of some tiles.
template <typename T>
void Winograd::gradients_of_tiles(const T* dy, std::int64_t first, std::int64_t count, T* m) const {
  using V = Vector<T>;
  const std::int64_t of_number = kTilesAtOnce * out_.channels;
  const std::vector<T> zeros(static_cast<std::size_t>(out_.channels));
  for (std::int64_t n = 0; n < count; ++n, m += out_.channels) {
    const std::int64_t tile = (first + n) % tiles();
    const std::int64_t top = 2 * (tile / across_);
    const std::int64_t left = 2 * (tile % across_);
    const T* image = dy + (first + n) / tiles() * out_.values();
    std::array<const T*, 4> from;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t row = top + i / 2;
      const std::int64_t column = left + i % 2;
      const bool inside = row < out_.height && column < out_.width;
      from[i] = inside ? image + (row * out_.width + column) * out_.channels : zeros.data();
    }
    for (std::int64_t c = 0; c < out_.channels; c += kLanes<T, CommonVectors>) {
      const auto at = [&](int i) -> V { return vector_at<V>(from[i] + c).value; };
      V half[2][4];
      V row[4];
      for (int i = 0; i < 2; ++i) spread(at(i), at(2 + i), half[i]);
      for (int i = 0; i < 4; ++i) {
        spread(half[0][i], half[1][i], row);
        for (int k = 0; k < 4; ++k) vector_at<V>(m + (4 * i + k) * of_number + c).value = row[k];
      }
    }
  }
}

template <typename T>
void Winograd::product(const T* x, std::int64_t images, const std::vector<T>& weights, T* y) const {
  constexpr std::int64_t kWidth = kTileChannels<T>;
  const std::int64_t inputs = in_.channels;
  std::vector<T> d(static_cast<std::size_t>(kNumbers * kTilesAtOnce * inputs));
  std::vector<T> m(static_cast<std::size_t>(kNumbers * kTilesAtOnce * kWidth));
  const std::vector<std::int32_t> pixels = rows_of(kTilesAtOnce, inputs);
  const std::vector<std::int32_t> rows = rows_of(kTilesAtOnce, kWidth);
  const Run all{.offset = 0, .weight = 0, .length = inputs};
  for (std::int64_t first = 0; first < images * tiles(); first += kTilesAtOnce) {
    const std::int64_t count = std::min(kTilesAtOnce, images * tiles() - first);
    seen_by_tiles(x, first, count, d.data());
    const T* block = weights.data();
    for (std::int64_t o = 0; o < out_.channels; o += kWidth) {
      for (std::int64_t i = 0; i < kNumbers; ++i, block += inputs * kWidth) {
        windows_product<T>(d.data() + i * kTilesAtOnce * inputs, first_of(pixels, count), {&all, 1},
                           block, std::min(kWidth, out_.channels - o),
                           m.data() + i * kTilesAtOnce * kWidth, first_of(rows, count));
      }
      outputs_of_tiles(m.data(), first, count, o, y);
    }
  }
}

template <typename T>
std::int64_t Winograd::sums() const {
  constexpr std::int64_t kWidth = kTileChannels<T>;
  return (out_.channels + kWidth - 1) / kWidth * kWidth * kNumbers * in_.channels;
}

template <typename T>
void Winograd::add_sums(const T* x, const T* dy, std::int64_t images, T* sums) const {
  constexpr std::int64_t kWidth = kTileChannels<T>;
  const std::int64_t inputs = in_.channels;
  const std::int64_t outputs = out_.channels;
  std::vector<T> d(static_cast<std::size_t>(kNumbers * kTilesAtOnce * inputs));
  // Behind the last tile, whole vectors are read.
  std::vector<T> m(static_cast<std::size_t>(kNumbers * kTilesAtOnce * outputs + kWidth));
  const std::vector<std::int32_t> pixels = rows_of(kTilesAtOnce, inputs);
  const std::vector<std::int32_t> others = rows_of(kTilesAtOnce, outputs);
  const Run all{.offset = 0, .weight = 0, .length = inputs};
  for (std::int64_t first = 0; first < images * tiles(); first += kTilesAtOnce) {
    const std::int64_t count = std::min(kTilesAtOnce, images * tiles() - first);
    seen_by_tiles(x, first, count, d.data());
    gradients_of_tiles(dy, first, count, m.data());
    T* block = sums;
    for (std::int64_t o = 0; o < outputs; o += kWidth) {
      for (std::int64_t i = 0; i < kNumbers; ++i, block += inputs * kWidth) {
        windows_sums<T>(d.data() + i * kTilesAtOnce * inputs, first_of(pixels, count), {&all, 1},
                        m.data() + i * kTilesAtOnce * outputs + o, first_of(others, count),
                        std::min(kWidth, outputs - o), block);
      }
    }
  }
}

template <typename T>
void Winograd::give_sums(const T* sums, T* dg) const {
  using V = Vector<T>;
  constexpr std::int64_t kWidth = kTileChannels<T>;
  for (std::int64_t o = 0; o < out_.channels; o += kLanes<T, CommonVectors>) {
    for (std::int64_t i = 0; i < in_.channels; ++i) {
      const T* from = sums + (o / kWidth * kNumbers * in_.channels + i) * kWidth + o % kWidth;
      const auto at = [&](int number) -> V {
        return vector_at<V>(from + number * in_.channels * kWidth).value;
      };
      V half[4][3];
      V tap[3][3];
      for (int x = 0; x < 4; ++x) narrow(at(x), at(4 + x), at(8 + x), at(12 + x), half[x]);
      for (int y = 0; y < 3; ++y) narrow(half[0][y], half[1][y], half[2][y], half[3][y], tap[y]);
      for (int l = 0; l < kLanes<T, CommonVectors>; ++l) {
        T* to = dg + ((o + l) * in_.channels + i) * kTaps;
        for (int t = 0; t < kTaps; ++t) to[t] = tap[t / 3][t % 3][l];
      }
    }
  }
}

#define FEDHPC_WINOGRAD(T)                                                                     \
  template std::int64_t Winograd::sums<T>() const;                                             \
  template std::vector<T> Winograd::weights(const T*, std::int64_t, std::int64_t, bool) const; \
  template void Winograd::product(const T*, std::int64_t, const std::vector<T>&, T*) const;    \
  template void Winograd::add_sums(const T*, const T*, std::int64_t, T*) const;                \
  template void Winograd::give_sums(const T*, T*) const;
FEDHPC_WINOGRAD(float)
FEDHPC_WINOGRAD(double)
#undef FEDHPC_WINOGRAD

}  // namespace fedhpc
