#include "fedhpc/models/row_measures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"
#include "fedhpc/math/vector_passes.hpp"

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

std::vector<std::int64_t> count_plateaus(const Rows& rows) {
  const std::int64_t columns = rows.values.size(1);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(rows.count()), columns > 0 ? 1 : 0);
  if (rows.count() == 0 || columns < 2) return counts;
  if (on_device(rows.values)) {
    const Tensor changes = rows.values.narrow(1, 1, columns - 1)
                               .ne(rows.values.narrow(1, 0, columns - 1))
                               .sum(1)
                               .add(1);
    const Tensor fetched = on_host(changes);
    std::copy_n(fetched.const_data_ptr<std::int64_t>(), rows.count(), counts.begin());
    return counts;
  }
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < rows.count(); ++c) {
      const T* row = rows.values.const_data_ptr<T>() + c * rows.values.stride(0);
      std::int64_t count = 1;
      for (std::int64_t i = 1; i < columns; ++i) count += row[i] != row[i - 1];
      counts[static_cast<std::size_t>(c)] = count;
    }
  });
  return counts;
}

RowNumbers squared_lengths(const Rows& rows, const Columns& among) {
  constexpr std::int64_t kLanes = 8;  // sums that do not wait for each other
  const auto trainable = rows.layout->ranges(Tag::Trainable, among);
  std::vector<double> lengths;
  if (rows.count() > 0 && on_device(rows.values)) {
    return RowNumbers(row_products_on_device(rows.values, {}, trainable)[0]);
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
  return RowNumbers(std::move(lengths));
}

RowNumbers inverse_lengths(const Rows& rows) {
  const RowNumbers squares = squared_lengths(rows);
  return where_positive(squares, 1 / sqrt(squares));
}

RowNumbers clip_(const Rows& rows, double most, const Columns& among) {
  constexpr double kLeast = 1e-6;  // PyTorch's, on the length
  const RowNumbers lengths = sqrt(squared_lengths(rows, among));
  const Tensor factors = at_most(most / (kLeast + lengths), 1).column(rows.values);
  for (const auto& [begin, end] : rows.layout->ranges(Tag::Trainable, among)) {
    rows.values.narrow(1, begin, end - begin).mul_(factors);
  }
  return lengths;
}

RowProducts inner_products(const Rows& a, const Rows& b) {
  require(a.layout == b.layout && (b.count() == a.count() || b.count() == 1),
          "rows of a layout, or rows and a single one");
  if (a.count() > 0 && on_device(a.values)) {
    const Tensor sums =
        row_products_on_device(a.values, b.values.expand_as(a.values), {{0, a.values.size(1)}});
    return {.aa = RowNumbers(sums[0]), .ab = RowNumbers(sums[1])};
  }
  std::vector<double> aa;
  std::vector<double> ab;
  with_type(a.values.scalar_type(), [&]<typename T>() {
    const std::int64_t stride = b.count() == 1 ? 0 : b.values.stride(0);
    for (std::int64_t c = 0; c < a.count(); ++c) {
      const InnerProducts of =
          inner_products(a.values.const_data_ptr<T>() + c * a.values.stride(0),
                         b.values.const_data_ptr<T>() + c * stride, a.values.size(1));
      aa.push_back(of.aa);
      ab.push_back(of.ab);
    }
  });
  return {.aa = RowNumbers(std::move(aa)), .ab = RowNumbers(std::move(ab))};
}

Tensor inner_products(const Rows& a, const Rows& b, const ColumnRanges& ranges) {
  require(a.layout == b.layout && a.count() == b.count(), "rows of a layout, as many of both");
  const Tensor products =
      at::empty({static_cast<std::int64_t>(ranges.size()), a.count()}, at::kDouble);
  if (products.numel() > 0 && on_device(a.values)) {
    std::vector<Tensor> there;
    for (const auto& range : ranges) {
      there.push_back(row_products_on_device(a.values, b.values, {range})[1]);
    }
    return on_host(at::stack(there)).t().contiguous();
  }
  with_type(a.values.scalar_type(), [&]<typename T>() {
    auto* next = products.data_ptr<double>();
    for (const auto& [begin, end] : ranges) {
      for (std::int64_t c = 0; c < a.count(); ++c) {
        *next++ = inner_products(a.values.const_data_ptr<T>() + c * a.values.stride(0) + begin,
                                 b.values.const_data_ptr<T>() + c * b.values.stride(0) + begin,
                                 end - begin)
                      .ab;
      }
    }
  });
  return products.t().contiguous();
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
