#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/windows.hpp"

// Convolutions as products: images unfolded into columns, and back.

namespace fedhpc::kernels {

/// What N places beside each other of an output see of one channel, at all taps of the window: values
/// of the columns [C, (i, ky, kx), (b, oy, ox)]; N divides out.width.
template <typename T, int N>
struct Unfold {
  DeviceImage in;
  Window window;
  std::int64_t tap;  // B places: from one tap to the next
  Images<const T> x;
  T* columns;
  Divisor out_width;  // in packs
  Divisor out_rows;
  Divisor batch;
  Divisor channels;

  explicit Unfold(const DeviceUnfold& of)
      : in(of.in),
        window(of.window),
        tap(of.x.batch * places_of(of.out)),
        x(of.x, places_of(of.in)),
        columns(static_cast<T*>(of.columns)),
        out_width(of.out.width / N),
        out_rows(of.out.height),
        batch(of.x.batch),
        channels(of.in.channels) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split column = out_width(i);
    const Split row = out_rows(column.quotient);
    const Split sample = batch(row.quotient);
    const Split channel = channels(sample.quotient);
    const T* image = x(channel.quotient, sample.rest, channel.rest);
    const std::int64_t taps = window.size.height * window.size.width;
    const std::int64_t top = row.rest * window.stride.height - window.padding.height;
    const std::int64_t left = column.rest * N * window.stride.width - window.padding.width;
    // i N is the place among those of all channels, each of which has `taps` rows.
    T* to = columns + i * N + sample.quotient * (taps - 1) * tap;
    for (std::int64_t ky = 0; ky < window.size.height; ++ky) {
      const std::int64_t y = top + ky * window.dilation.height;
      const bool inside = 0 <= y && y < in.height;
      const T* from = image + (inside ? y : 0) * in.width;
      FEDHPC_NO_UNROLL
      for (std::int64_t kx = 0; kx < window.size.width; ++kx, to += tap) {
        const std::int64_t first = left + kx * window.dilation.width;
        Pack<T, N> pack;
        for (int k = 0; k < N; ++k) {
          const std::int64_t at = first + k * window.stride.width;
          pack.value[k] = inside && 0 <= at && at < in.width ? from[at] : T{0};
        }
        store(to, pack);
      }
    }
  }
};

/// One value of the image: the sum over the windows that hold its place, in order of their places.
template <typename T, bool kDilated>
struct Fold {
  DeviceImage in;
  DeviceImage out;
  Window window;
  std::int64_t samples;  // B
  Images<T> x;
  const T* columns;
  ImageIndex index;
  HoldersOf down;
  HoldersOf across;
  Divisor row_dilation;
  Divisor column_dilation;

  explicit Fold(const DeviceUnfold& of)
      : in(of.in),
        out(of.out),
        window(of.window),
        samples(of.x.batch),
        x(of.x, places_of(of.in)),
        columns(static_cast<const T*>(of.columns)),
        index(of.x, of.in),
        down(of.window.down(), of.out.height),
        across(of.window.across(), of.out.width),
        row_dilation(of.window.dilation.height),
        column_dilation(of.window.dilation.width) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const Holders rows = down(at.row);
    const Holders places = across(at.column);
    const std::int64_t taps = window.size.height * window.size.width;
    const std::int64_t tap = samples * out.height * out.width;  // from one place of a window on
    const T* of_channel = columns + (at.client * in.channels + at.channel) * taps * tap +
                          at.sample * out.height * out.width;
    const std::int64_t top = at.row + window.padding.height;
    const std::int64_t left = at.column + window.padding.width;
    T sum{0};
    if constexpr (kDilated) {
      for (std::int64_t oy = rows.first; oy <= rows.last; ++oy) {
        const Split ky = row_dilation(top - oy * window.stride.height);
        if (ky.rest != 0) continue;
        for (std::int64_t ox = places.first; ox <= places.last; ++ox) {
          const Split kx = column_dilation(left - ox * window.stride.width);
          if (kx.rest != 0) continue;
          sum += of_channel[(ky.quotient * window.size.width + kx.quotient) * tap + oy * out.width +
                            ox];
        }
      }
    } else {
      const std::int64_t ky = top - rows.first * window.stride.height;
      const std::int64_t kx = left - places.first * window.stride.width;
      const T* row_of =
          of_channel + (ky * window.size.width + kx) * tap + rows.first * out.width + places.first;
      // In the next window the place comes earlier, by the window's stride.
      const std::int64_t next_row = out.width - window.stride.height * window.size.width * tap;
      const std::int64_t next_column = 1 - window.stride.width * tap;
      for (std::int64_t oy = rows.first; oy <= rows.last; ++oy, row_of += next_row) {
        const T* of = row_of;
        for (std::int64_t ox = places.first; ox <= places.last; ++ox, of += next_column) {
          sum += *of;
        }
      }
    }
    x(at.client, at.sample, at.channel)[at.row * in.width + at.column] = sum;
  }
};

}  // namespace fedhpc::kernels
