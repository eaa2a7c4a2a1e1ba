#include "fedhpc/models/row_measures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"

namespace fedhpc {

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
    constexpr std::int64_t kMask = std::int64_t{1} << 27;  // bytes of a mask, which is a copy
    const std::int64_t widest = std::max<std::int64_t>(1, kMask / rows.count());
    Tensor sums = at::zeros({rows.count()}, rows.values.options().dtype(at::kLong));
    for (const auto& [begin, end] : trainable) {
      for (std::int64_t first = begin; first < end; first += widest) {
        const std::int64_t width = std::min(widest, end - first);
        sums.add_(rows.values.narrow(1, first, width).ne(0).sum(1));
      }
    }
    sums = on_host(sums);
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
    const Tensor sums = on_host(row_products_on_device(rows.values, {}, trainable));
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
        on_host(row_products_on_device(a.values, b.values, {{0, a.values.size(1)}}));
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
