#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

/// Value i of [C, B, channels, height, width].
struct ImageIndex {
  Divisor width;
  Divisor height;
  Divisor channels;
  Divisor batch;

  ImageIndex(std::int64_t samples, std::int64_t planes, std::int64_t rows, std::int64_t columns)
      : width(columns), height(rows), channels(planes), batch(samples) {}

  struct At {
    std::int64_t client;
    std::int64_t sample;
    std::int64_t channel;
    std::int64_t row;
    std::int64_t column;
  };
  FEDHPC_KERNEL At operator()(std::int64_t i) const {
    const Split by_column = width(i);
    const Split by_row = height(by_column.quotient);
    const Split by_channel = channels(by_row.quotient);
    const Split by_sample = batch(by_channel.quotient);
    return {by_sample.quotient, by_sample.rest, by_channel.rest, by_row.rest, by_column.rest};
  }
};

/// One maximum and its place; the first of equal ones, NaN if there is one.
template <typename T>
struct MaxPoolForward {
  DeviceImage in;
  DeviceImage out;
  DeviceWindow window;
  Samples<const T> x;
  Samples<T> y;
  Samples<std::int32_t> places;
  ImageIndex index;

  explicit MaxPoolForward(const DeviceMaxPool& of)
      : in(of.in),
        out(of.out),
        window(of.window),
        x(of.x),
        y(of.y),
        places(of.places),
        index(of.x.batch, of.in.channels, of.out.height, of.out.width) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* plane = x(at.client, at.sample) + at.channel * in.height * in.width;
    const std::int64_t top = at.row * window.stride - window.padding;
    const std::int64_t left = at.column * window.stride - window.padding;
    const std::int64_t begin = larger(left, 0);
    const std::int64_t end = smaller(left + window.size, in.width);
    const std::int64_t bottom = smaller(top + window.size, in.height);
    std::int64_t best = larger(top, 0) * in.width + begin;
    T largest = plane[best];
    for (std::int64_t row = larger(top, 0); row < bottom; ++row) {
      for (std::int64_t column = begin; column < end; ++column) {
        const T value = plane[row * in.width + column];
        if (value > largest || value != value) {
          largest = value;
          best = row * in.width + column;
        }
      }
    }
    const std::int64_t to = (at.channel * out.height + at.row) * out.width + at.column;
    y(at.client, at.sample)[to] = largest;
    if (places.data != nullptr) {
      places(at.client, at.sample)[to] = static_cast<std::int32_t>(best);
    }
  }
};

/// One place of the input's gradient: what the windows send whose maximum it is, in their order.
template <typename T>
struct MaxPoolBackward {
  DeviceImage in;
  DeviceImage out;
  DeviceWindow window;
  Samples<T> dx;
  Samples<const T> dy;
  Samples<const std::int32_t> places;
  ImageIndex index;
  Divisor stride;

  explicit MaxPoolBackward(const DeviceMaxPool& of)
      : in(of.in),
        out(of.out),
        window(of.window),
        dx(of.x),
        dy(of.y),
        places(of.places),
        index(of.x.batch, of.in.channels, of.in.height, of.in.width),
        stride(of.window.stride) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const std::int64_t plane = at.channel * out.height * out.width;
    const T* gradient = dy(at.client, at.sample) + plane;
    const std::int32_t* chosen = places(at.client, at.sample) + plane;
    const std::int64_t own = at.row * in.width + at.column;
    T sum{0};
    const std::int64_t last_row = last_window(at.row, out.height);
    const std::int64_t last_column = last_window(at.column, out.width);
    for (std::int64_t oy = first_window(at.row); oy <= last_row; ++oy) {
      for (std::int64_t ox = first_window(at.column); ox <= last_column; ++ox) {
        const std::int64_t o = oy * out.width + ox;
        if (chosen[o] == own) sum += gradient[o];
      }
    }
    dx(at.client, at.sample)[at.channel * in.height * in.width + own] = sum;
  }

 private:
  FEDHPC_KERNEL std::int64_t first_window(std::int64_t place) const {
    const std::int64_t padded = place + window.padding;
    return padded < window.size ? 0 : stride(padded - window.size).quotient + 1;
  }
  FEDHPC_KERNEL std::int64_t last_window(std::int64_t place, std::int64_t windows) const {
    return smaller(stride(place + window.padding).quotient, windows - 1);
  }
};

template <typename T>
FEDHPC_KERNEL T share_of(const Range& rows, const Range& columns) {
  return T{1} / static_cast<T>((rows.last - rows.first) * (columns.last - columns.first));
}

template <typename T>
struct AveragePoolForward {
  DeviceImage in;
  const Range* rows;
  const Range* columns;
  std::int64_t out_height;
  std::int64_t out_width;
  Samples<const T> x;
  Samples<T> y;
  ImageIndex index;

  explicit AveragePoolForward(const DeviceAveragePool& of)
      : in(of.in),
        rows(of.rows),
        columns(of.columns),
        out_height(of.out_height),
        out_width(of.out_width),
        x(of.x),
        y(of.y),
        index(of.x.batch, of.in.channels, of.out_height, of.out_width) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* plane = x(at.client, at.sample) + at.channel * in.height * in.width;
    const Range down = rows[at.row];
    const Range across = columns[at.column];
    const T share = share_of<T>(down, across);
    T sum{0};
    for (std::int64_t row = down.first; row < down.last; ++row) {
      for (std::int64_t column = across.first; column < across.last; ++column) {
        sum += share * plane[row * in.width + column];
      }
    }
    y(at.client, at.sample)[(at.channel * out_height + at.row) * out_width + at.column] = sum;
  }
};

template <typename T>
struct AveragePoolBackward {
  DeviceImage in;
  const Range* rows;
  const Range* columns;
  std::int64_t out_height;
  std::int64_t out_width;
  Samples<T> dx;
  Samples<const T> dy;
  ImageIndex index;

  explicit AveragePoolBackward(const DeviceAveragePool& of)
      : in(of.in),
        rows(of.rows),
        columns(of.columns),
        out_height(of.out_height),
        out_width(of.out_width),
        dx(of.x),
        dy(of.y),
        index(of.x.batch, of.in.channels, of.in.height, of.in.width) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* gradient = dy(at.client, at.sample) + at.channel * out_height * out_width;
    T sum{0};
    for (std::int64_t oy = 0; oy < out_height; ++oy) {
      const Range down = rows[oy];
      if (at.row < down.first || down.last <= at.row) continue;
      for (std::int64_t ox = 0; ox < out_width; ++ox) {
        const Range across = columns[ox];
        if (at.column < across.first || across.last <= at.column) continue;
        sum += share_of<T>(down, across) * gradient[oy * out_width + ox];
      }
    }
    dx(at.client, at.sample)[(at.channel * in.height + at.row) * in.width + at.column] = sum;
  }
};

}  // namespace fedhpc::kernels
