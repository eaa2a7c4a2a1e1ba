#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

// Convolutions as products: images unfolded into columns, and back.

namespace fedhpc::kernels {

/// N values beside each other of the columns [C, (i, ky, kx), (b, oy, ox)]; N divides out.width.
template <typename T, int N>
struct Unfold {
  DeviceImage in;
  DeviceWindow window;
  std::int64_t out_height;
  Samples<const T> x;
  T* columns;
  Divisor out_width;  // in packs
  Divisor out_rows;
  Divisor batch;
  Divisor taps;  // places of a window
  Divisor size;
  Divisor channels;

  explicit Unfold(const DeviceUnfold& of)
      : in(of.in),
        window(of.window),
        out_height(of.out.height),
        x(of.x),
        columns(static_cast<T*>(of.columns)),
        out_width(of.out.width / N),
        out_rows(of.out.height),
        batch(of.x.batch),
        taps(of.window.size * of.window.size),
        size(of.window.size),
        channels(of.in.channels) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split column = out_width(i);
    const Split row = out_rows(column.quotient);
    const Split sample = batch(row.quotient);
    const Split tap = taps(sample.quotient);
    const Split channel = channels(tap.quotient);
    const Split within = size(tap.rest);  // ky, kx
    const std::int64_t y = row.rest * window.stride + within.quotient - window.padding;
    const std::int64_t first = column.rest * N * window.stride + within.rest - window.padding;
    const bool inside = 0 <= y && y < in.height;
    const T* from =
        x(channel.quotient, sample.rest) + (channel.rest * in.height + (inside ? y : 0)) * in.width;
    Pack<T, N> pack;
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = first + k * window.stride;
      pack.value[k] = inside && 0 <= at && at < in.width ? from[at] : T{0};
    }
    store(columns + i * N, pack);
  }
};

/// One value of the image: the sum over the windows that hold its place, in order of their places.
template <typename T>
struct Fold {
  DeviceImage in;
  DeviceImage out;
  DeviceWindow window;
  std::int64_t samples;  // B
  Samples<T> x;
  const T* columns;
  Divisor in_width;
  Divisor in_height;
  Divisor channels;
  Divisor batch;
  Divisor stride;

  explicit Fold(const DeviceUnfold& of)
      : in(of.in),
        out(of.out),
        window(of.window),
        samples(of.x.batch),
        x(of.x),
        columns(static_cast<const T*>(of.columns)),
        in_width(of.in.width),
        in_height(of.in.height),
        channels(of.in.channels),
        batch(of.x.batch),
        stride(of.window.stride) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split column = in_width(i);
    const Split row = in_height(column.quotient);
    const Split channel = channels(row.quotient);
    const Split sample = batch(channel.quotient);
    const std::int64_t y = row.rest + window.padding;  // in the padded image
    const std::int64_t left = column.rest + window.padding;
    const std::int64_t places = out.height * out.width;
    const std::int64_t tap = samples * places;  // from one place of a window to the next
    const std::int64_t first_row = first_window(y);
    const std::int64_t first_column = first_window(left);
    const std::int64_t last_row = smaller(stride(y).quotient, out.height - 1);
    const std::int64_t last_column = smaller(stride(left).quotient, out.width - 1);
    const std::int64_t ky = y - first_row * window.stride;
    const std::int64_t kx = left - first_column * window.stride;
    const std::int64_t inner =
        (sample.quotient * in.channels + channel.rest) * window.size * window.size;
    std::int64_t row_of = (inner + ky * window.size + kx) * tap + sample.rest * places +
                          first_row * out.width + first_column;
    // In the next window the place comes earlier, by the window's stride.
    const std::int64_t next_row = out.width - window.stride * window.size * tap;
    const std::int64_t next_column = 1 - window.stride * tap;
    T sum{0};
    for (std::int64_t oy = first_row; oy <= last_row; ++oy, row_of += next_row) {
      std::int64_t of = row_of;
      for (std::int64_t ox = first_column; ox <= last_column; ++ox, of += next_column) {
        sum += columns[of];
      }
    }
    T* image = x(sample.quotient, sample.rest);
    image[(channel.rest * in.height + row.rest) * in.width + column.rest] = sum;
  }

 private:
  /// The first window that reaches this far.
  FEDHPC_KERNEL std::int64_t first_window(std::int64_t place) const {
    return place < window.size ? 0 : stride(place - window.size).quotient + 1;
  }
};

}  // namespace fedhpc::kernels
