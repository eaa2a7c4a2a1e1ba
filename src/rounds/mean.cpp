#include "fedhpc/rounds/mean.hpp"

#include <algorithm>
#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace fedhpc {

Mean::Mean(Communicator& comm, LayoutPtr layout, at::ScalarType type, Stopwatch& watch)
    : comm_(comm),
      layout_(std::move(layout)),
      type_(type),
      watch_(watch),
      sums_(at::zeros({layout_->size() + 1}, at::kDouble)) {}

void Mean::add(std::span<const double> weights, const Rows& rows) {
  require(rows.layout == layout_, "a mean takes rows of its own layout");
  require(static_cast<std::int64_t>(weights.size()) == rows.count(), "one weight per row");
  const Timed timed(watch_);
  auto* sums = sums_.data_ptr<double>();
  const std::int64_t length = layout_->size();
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    // Tiles keep the block sum in the nearest cache while the clients' rows stream by.
    constexpr std::int64_t kTile = 1024;
    std::array<T, kTile> block;
    for (std::int64_t begin = 0; begin < length; begin += kTile) {
      const std::int64_t width = std::min(kTile, length - begin);
      block.fill(T{0});
      for (std::size_t c = 0; c < weights.size(); ++c) {
        const T weight = static_cast<T>(weights[c]);
        if (weights[c] == 0) continue;  // weighs nothing, even where it holds NaN
        const T* row = rows.values.const_data_ptr<T>() +
                       static_cast<std::int64_t>(c) * rows.values.stride(0) + begin;
        for (std::int64_t i = 0; i < width; ++i)
          block[static_cast<std::size_t>(i)] += weight * row[i];
      }
      for (std::int64_t i = 0; i < width; ++i) {
        sums[begin + i] += static_cast<double>(block[static_cast<std::size_t>(i)]);
      }
    }
  });
  for (const double weight : weights) sums[length] += weight;
}

Rows Mean::reduce() {
  const Timed timed(watch_);
  comm_.sum_(sums_);
  const std::int64_t length = layout_->size();
  const auto* sums = sums_.const_data_ptr<double>();
  const double weight = sums[length];
  Tensor mean = at::zeros({1, length}, type_);
  if (weight != 0) {
    with_type(type_, [&]<typename T>() {
      T* out = mean.data_ptr<T>();
      for (std::int64_t i = 0; i < length; ++i) out[i] = static_cast<T>(sums[i] / weight);
    });
  }
  return {mean, layout_};
}

}  // namespace fedhpc
