#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/windows.hpp"

namespace fedhpc::kernels {

/// What an output covers of its plane: rows and columns from the first on, a step apart.
struct CoveredPlaces {
  Covered down;
  Covered across;
};

/// Windows: what they cover is computed.
struct ByWindows {
  DeviceImage in;
  WindowSide down;
  WindowSide across;
  HoldersOf holds_row;
  HoldersOf holds_column;

  explicit ByWindows(const DeviceMaxPool& of)
      : in(of.in),
        down(of.window.down()),
        across(of.window.across()),
        holds_row(down, of.out.height),
        holds_column(across, of.out.width) {}

  FEDHPC_KERNEL CoveredPlaces operator()(std::int64_t row, std::int64_t column) const {
    return {covered(down, row, in.height), covered(across, column, in.width)};
  }
  FEDHPC_KERNEL std::int64_t row_step() const { return down.dilation; }
  FEDHPC_KERNEL std::int64_t column_step() const { return across.dilation; }
  FEDHPC_KERNEL Holders rows_with(std::int64_t row) const { return holds_row(row); }
  FEDHPC_KERNEL Holders columns_with(std::int64_t column) const { return holds_column(column); }

 private:
  FEDHPC_KERNEL static Covered covered(const WindowSide& side, std::int64_t output,
                                       std::int64_t length) {
    const std::int64_t begin = output * side.stride - side.padding;
    std::int64_t first = begin;
    while (first < 0) first += side.dilation;
    const std::int64_t end = begin + side.dilation * (side.size - 1) + 1;
    return {first, smaller(end, length), 0};
  }
};

/// Parts of the image: what they cover stands in tables.
struct ByParts {
  DevicePooled parts;
  DeviceImage out;

  explicit ByParts(const DeviceMaxPool& of) : parts(of.parts), out(of.out) {}

  FEDHPC_KERNEL CoveredPlaces operator()(std::int64_t row, std::int64_t column) const {
    return {parts.rows[row], parts.columns[column]};
  }
  FEDHPC_KERNEL std::int64_t row_step() const { return 1; }
  FEDHPC_KERNEL std::int64_t column_step() const { return 1; }
  FEDHPC_KERNEL Holders rows_with(std::int64_t row) const {
    return holders(parts.rows, out.height, row);
  }
  FEDHPC_KERNEL Holders columns_with(std::int64_t column) const {
    return holders(parts.columns, out.width, column);
  }

 private:
  /// Firsts and lasts of the parts do not fall.
  FEDHPC_KERNEL static Holders holders(const Covered* all, std::int64_t count, std::int64_t place) {
    Holders found{0, count - 1};
    while (all[found.first].last <= place) ++found.first;
    while (all[found.last].first > place) --found.last;
    return found;
  }
};

/// One maximum and its place; the first of equal ones, NaN if there is one.
template <typename T, typename By>
struct MaxPoolForward {
  DeviceImage in;
  DeviceImage out;
  By by;
  Images<const T> x;
  Images<T> y;
  Images<std::int32_t> places;
  ImageIndex index;

  explicit MaxPoolForward(const DeviceMaxPool& of)
      : in(of.in),
        out(of.out),
        by(of),
        x(of.x, places_of(of.in)),
        y(of.y, places_of(of.out)),
        places(of.places, places_of(of.out)),
        index(of.y, of.out) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* plane = x(at.client, at.sample, at.channel);
    const CoveredPlaces covered = by(at.row, at.column);
    std::int64_t best = covered.down.first * in.width + covered.across.first;
    T largest = plane[best];
    for (std::int64_t row = covered.down.first; row < covered.down.last; row += by.row_step()) {
      for (std::int64_t column = covered.across.first; column < covered.across.last;
           column += by.column_step()) {
        const T value = plane[row * in.width + column];
        if (value > largest || value != value) {
          largest = value;
          best = row * in.width + column;
        }
      }
    }
    const std::int64_t to = at.row * out.width + at.column;
    y(at.client, at.sample, at.channel)[to] = largest;
    if (places.data != nullptr) {
      places(at.client, at.sample, at.channel)[to] = static_cast<std::int32_t>(best);
    }
  }
};

/// One place of the input's gradient: what the outputs send whose maximum it is, in their order.
template <typename T, typename By>
struct MaxPoolBackward {
  DeviceImage in;
  DeviceImage out;
  By by;
  Images<T> dx;
  Images<const T> dy;
  Images<const std::int32_t> places;
  ImageIndex index;

  explicit MaxPoolBackward(const DeviceMaxPool& of)
      : in(of.in),
        out(of.out),
        by(of),
        dx(of.x, places_of(of.in)),
        dy(of.y, places_of(of.out)),
        places(of.places, places_of(of.out)),
        index(of.x, of.in) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* gradient = dy(at.client, at.sample, at.channel);
    const std::int32_t* chosen = places(at.client, at.sample, at.channel);
    const std::int64_t own = at.row * in.width + at.column;
    const Holders rows = by.rows_with(at.row);
    const Holders columns = by.columns_with(at.column);
    T sum{0};
    for (std::int64_t oy = rows.first; oy <= rows.last; ++oy) {
      for (std::int64_t ox = columns.first; ox <= columns.last; ++ox) {
        const std::int64_t o = oy * out.width + ox;
        if (chosen[o] == own) sum += gradient[o];
      }
    }
    dx(at.client, at.sample, at.channel)[own] = sum;
  }
};

template <typename T>
FEDHPC_KERNEL T share_of(const Covered& down, const Covered& across) {
  return T{1} / static_cast<T>(down.count * across.count);
}

template <typename T>
struct AveragePoolForward {
  DeviceImage in;
  DeviceImage out;
  DevicePooled parts;
  Images<const T> x;
  Images<T> y;
  ImageIndex index;

  explicit AveragePoolForward(const DeviceAveragePool& of)
      : in(of.in),
        out(of.out),
        parts(of.parts),
        x(of.x, places_of(of.in)),
        y(of.y, places_of(of.out)),
        index(of.y, of.out) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* plane = x(at.client, at.sample, at.channel);
    const Covered down = parts.rows[at.row];
    const Covered across = parts.columns[at.column];
    const T share = share_of<T>(down, across);
    T sum{0};
    for (std::int64_t row = down.first; row < down.last; ++row) {
      for (std::int64_t column = across.first; column < across.last; ++column) {
        sum += share * plane[row * in.width + column];
      }
    }
    y(at.client, at.sample, at.channel)[at.row * out.width + at.column] = sum;
  }
};

template <typename T>
struct AveragePoolBackward {
  DeviceImage in;
  DeviceImage out;
  DevicePooled parts;
  Images<T> dx;
  Images<const T> dy;
  ImageIndex index;

  explicit AveragePoolBackward(const DeviceAveragePool& of)
      : in(of.in),
        out(of.out),
        parts(of.parts),
        dx(of.x, places_of(of.in)),
        dy(of.y, places_of(of.out)),
        index(of.x, of.in) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const T* gradient = dy(at.client, at.sample, at.channel);
    T sum{0};
    for (std::int64_t oy = 0; oy < out.height; ++oy) {
      const Covered down = parts.rows[oy];
      if (at.row < down.first || down.last <= at.row) continue;
      for (std::int64_t ox = 0; ox < out.width; ++ox) {
        const Covered across = parts.columns[ox];
        if (at.column < across.first || across.last <= at.column) continue;
        sum += share_of<T>(down, across) * gradient[oy * out.width + ox];
      }
    }
    dx(at.client, at.sample, at.channel)[at.row * in.width + at.column] = sum;
  }
};

}  // namespace fedhpc::kernels
