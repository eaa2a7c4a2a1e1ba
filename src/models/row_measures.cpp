#include "fedhpc/models/row_measures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

constexpr std::int64_t kSliceValues = std::int64_t{1} << 25;  // of a copy in float64: 256 MiB

/// The sums of of_slice(columns begin to end - 1), [C, ...], over these ranges, in slices that keep
/// copies small; in host memory after one wait.
template <typename OfSlice>
Tensor sums_on_device(const Tensor& rows, const Ranges& ranges, at::IntArrayRef shape,
                      at::ScalarType type, OfSlice&& of_slice) {
  const std::int64_t widest = std::max<std::int64_t>(1, kSliceValues / rows.size(0));
  Tensor sums = at::zeros(shape, rows.options().dtype(type));
  for (const auto& [begin, end] : ranges) {
    for (std::int64_t first = begin; first < end; first += widest) {
      sums.add_(of_slice(first, std::min(widest, end - first)));
    }
  }
  return sums.cpu();
}

}  // namespace

void zero_small_(const Rows& rows, double threshold) {
  const auto trainable = rows.layout->ranges(Tag::Trainable);
  if (on_device(rows.values)) {
    for (const auto& [begin, end] : trainable) {
      const Tensor part = rows.values.narrow(1, begin, end - begin);
      part.masked_fill_(part.abs().le(threshold), 0);
    }
    return;
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    const T bound = static_cast<T>(threshold);
    for (std::int64_t c = 0; c < rows.count(); ++c) {
      T* row = rows.values.data_ptr<T>() + c * rows.values.stride(0);
      for (const auto& [begin, end] : trainable) {
        for (std::int64_t i = begin; i < end; ++i) row[i] = std::abs(row[i]) <= bound ? 0 : row[i];
      }
    }
  });
}

std::vector<std::int64_t> count_nonzero(const Rows& rows) {
  const auto trainable = rows.layout->ranges(Tag::Trainable);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(rows.count()), 0);
  if (rows.count() > 0 && on_device(rows.values)) {
    const Tensor sums = sums_on_device(rows.values, trainable, {rows.count()}, at::kLong,
                                       [&](std::int64_t first, std::int64_t width) {
                                         return rows.values.narrow(1, first, width).ne(0).sum(1);
                                       });
    std::copy_n(sums.const_data_ptr<std::int64_t>(), rows.count(), counts.begin());
    return counts;
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < rows.count(); ++c) {
      const T* row = rows.values.const_data_ptr<T>() + c * rows.values.stride(0);
      std::int64_t count = 0;
      for (const auto& [begin, end] : trainable) {
        for (std::int64_t i = begin; i < end; ++i) count += row[i] != 0;
      }
      counts[static_cast<std::size_t>(c)] = count;
    }
  });
  return counts;
}

std::vector<double> squared_lengths(const Rows& rows) {
  constexpr std::int64_t kLanes = 8;  // sums that do not wait for each other
  const auto trainable = rows.layout->ranges(Tag::Trainable);
  std::vector<double> lengths;
  if (rows.count() > 0 && on_device(rows.values)) {
    const Tensor sums =
        sums_on_device(rows.values, trainable, {rows.count()}, at::kDouble,
                       [&](std::int64_t first, std::int64_t width) {
                         return rows.values.narrow(1, first, width).to(at::kDouble).square().sum(1);
                       });
    const double* values = sums.const_data_ptr<double>();
    return {values, values + rows.count()};
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < rows.count(); ++c) {
      const T* row = rows.values.const_data_ptr<T>() + c * rows.values.stride(0);
      std::array<double, kLanes> squares{};
      for (const auto& [begin, end] : trainable) {
        std::int64_t i = begin;
        for (; i + kLanes <= end; i += kLanes) {
          for (std::int64_t lane = 0; lane < kLanes; ++lane) {
            const auto value = static_cast<double>(row[i + lane]);
            squares[static_cast<std::size_t>(lane)] += value * value;
          }
        }
        for (; i < end; ++i) {
          const auto value = static_cast<double>(row[i]);
          squares[0] += value * value;
        }
      }
      lengths.push_back(std::accumulate(squares.begin(), squares.end(), 0.0));
    }
  });
  return lengths;
}

InnerProducts inner_products(const Rows& a, const Rows& b) {
  require(a.layout == b.layout && a.count() == 1 && b.count() == 1, "two single rows of a layout");
  if (on_device(a.values)) {
    const Tensor sums =
        sums_on_device(a.values, {{0, a.values.size(1)}}, {2}, at::kDouble,
                       [&](std::int64_t first, std::int64_t width) {
                         const Tensor x = a.values.narrow(1, first, width).to(at::kDouble);
                         const Tensor y = b.values.narrow(1, first, width).to(at::kDouble);
                         return at::stack({x.mul(x).sum(), x.mul(y).sum()});
                       });
    return {sums.const_data_ptr<double>()[0], sums.const_data_ptr<double>()[1]};
  }
  InnerProducts of;
  with_type(a.values.scalar_type(), [&]<typename T>() {
    of = inner_products(a.values.const_data_ptr<T>(), b.values.const_data_ptr<T>(),
                        a.values.size(1));
  });
  return of;
}

std::vector<double> densities(const Rows& rows) {
  const auto all = static_cast<double>(rows.layout->count(Tag::Trainable));
  std::vector<double> shares;
  for (const std::int64_t count : count_nonzero(rows)) {
    shares.push_back(static_cast<double>(count) / all);
  }
  return shares;
}

}  // namespace fedhpc
