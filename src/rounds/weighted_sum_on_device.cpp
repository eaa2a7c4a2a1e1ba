#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"
#include "fedhpc/rounds/device_kernels.hpp"
#include "fedhpc/rounds/weighted_sum.hpp"

#include "rounds/side_stream.hpp"
#include "rounds/sum_exponents.hpp"

namespace fedhpc {

namespace {

/// Calls use(first, w x of columns [first, first + width) in float64) for all columns of rows [C,
/// P], as many at a time as keeps them small. Rows of weight 0 are 0 whatever they hold. `weights`
/// [C, 1].
template <typename Use>
void each_slice(const Tensor& rows, const Tensor& weights, const Use& use) {
  constexpr std::int64_t kValues = std::int64_t{1} << 24;
  const std::int64_t widest = std::max<std::int64_t>(1, kValues / rows.size(0));
  const Tensor unread = weights.eq(0);
  for (std::int64_t first = 0; first < rows.size(1); first += widest) {
    const std::int64_t width = std::min(widest, rows.size(1) - first);
    use(first, rows.narrow(1, first, width).mul(weights).masked_fill_(unread, 0));
  }
}

/// The largest |w x| of each row, NaN where one is NaN, [C].
Tensor largest_of(const Tensor& rows, const Tensor& weights) {
  Tensor largest = at::zeros({rows.size(0)}, weights.options());
  each_slice(rows, weights, [&](std::int64_t, const Tensor& addends) {
    largest = at::maximum(largest, addends.abs().amax(1));
  });
  return largest;
}

/// The largest finite |w x| of a single row.
double largest_finite_of(const Tensor& row, const Tensor& weight) {
  double largest = 0;
  each_slice(row, weight, [&](std::int64_t, const Tensor& addends) {
    const Tensor magnitudes = addends.masked_fill(addends.isfinite().logical_not(), 0).abs();
    largest = std::max(largest, magnitudes.max().item<double>());
  });
  return largest;
}

/// sums[segments[c]] += addends[c]
void add_to_segments_(const Tensor& sums, const Tensor& segments, const Tensor& addends) {
  if (sums.size(0) == 1) {
    sums[0].add_(addends.sum(0));
  } else {
    sums.index_add_(0, segments, addends);
  }
}

}  // namespace

void WeightedSum::add_on_device(std::span<const std::int64_t> segments,
                                std::span<const double> weights, const Tensor& rows) {
  contents_->side->run({rows, contents_->sums}, [&] {
    const Tensor of_rows = to_device(segments, device_);
    const Tensor factors = to_device(weights, device_);
    device_kernels<RoundKernels>().add_weighted({.type = real_of(rows),
                                                 .rows = rows.size(0),
                                                 .columns = columns_,
                                                 .values = device_columns(rows),
                                                 .segments = of_rows.const_data_ptr<std::int64_t>(),
                                                 .weights = factors.const_data_ptr<double>(),
                                                 .segment_count = segments_,
                                                 .sums = contents_->sums.data_ptr<double>()});
  });
}

Tensor WeightedSum::exact_total_on_device(Topology& topology, Among ranks) const {
  std::vector<Tensor> weights;  // of each addend, [C, 1]
  std::vector<Tensor> largest;  // [C]
  for (const SumContents::Addend& addend : contents_->addends) {
    weights.push_back(to_device(addend.weights, device_).unsqueeze(1));
    largest.push_back(largest_of(addend.rows, weights.back()));
  }
  SumExponents exponents(segments_);
  if (!largest.empty()) {
    const Tensor all = on_host(at::cat(largest));
    const double* next = all.const_data_ptr<double>();
    for (std::size_t i = 0; i < contents_->addends.size(); ++i) {
      for (std::size_t c = 0; c < contents_->addends[i].weights.size(); ++c, ++next) {
        if (contents_->addends[i].weights[c] == 0) continue;
        exponents.note(contents_->addends[i].segments[c], contents_->addends[i].weights[c], *next,
                       [&] {
                         const auto row = static_cast<std::int64_t>(c);
                         return largest_finite_of(contents_->addends[i].rows.narrow(0, row, 1),
                                                  weights[i].narrow(0, row, 1));
                       });
      }
    }
  }
  exponents.agree(topology, ranks);

  const auto options = at::TensorOptions(at::kDouble).device(device_);
  const Tensor sums = at::zeros({2, segments_, columns_ + 1}, options.dtype(at::kLong));
  const Tensor rest = at::zeros({segments_, columns_ + 1}, options);  // what is not finite
  std::vector<std::int64_t> of_weights(static_cast<std::size_t>(segments_), 0);
  for (std::size_t i = 0; i < contents_->addends.size(); ++i) {
    const SumContents::Addend& addend = contents_->addends[i];
    std::vector<double> of_rows;
    for (std::size_t c = 0; c < addend.weights.size(); ++c) {
      const std::int64_t s = addend.segments[c];
      of_rows.push_back(exponents.scale(s));
      of_weights[static_cast<std::size_t>(s)] +=
          std::llrint(addend.weights[c] * exponents.weight_scale(s));
    }
    const Tensor scales = to_device(of_rows, device_).unsqueeze(1);
    const Tensor segments = to_device(addend.segments, device_);
    each_slice(addend.rows, weights[i], [&](std::int64_t first, Tensor addends) {
      if (!exponents.all_finite()) {
        const Tensor finite = addends.isfinite();
        add_to_segments_(rest.narrow(1, first, addends.size(1)), segments,
                         addends.masked_fill(finite, 0));
        addends = addends.masked_fill(finite.logical_not(), 0);
      }
      const Tensor scaled = addends.mul(scales);
      const Tensor high = scaled.round();
      const Tensor low = scaled.sub(high).mul_(SumExponents::kOfRest).round_();
      const Tensor slice = sums.narrow(2, first, addends.size(1));
      add_to_segments_(slice[0], segments, high.to(at::kLong));
      add_to_segments_(slice[1], segments, low.to(at::kLong));
    });
  }
  sums[0].select(1, columns_).copy_(to_device(of_weights, device_));
  Tensor integers = sums;
  topology.sum_(ranks, integers);
  Tensor apart = rest;
  if (!exponents.all_finite()) topology.sum_(ranks, apart);

  std::vector<double> units;  // powers of two: exact
  std::vector<double> weight_units;
  for (std::int64_t s = 0; s < segments_; ++s) {
    units.push_back(1 / exponents.scale(s));
    weight_units.push_back(1 / exponents.weight_scale(s));
  }
  const Tensor total =
      integers[1].to(at::kDouble).div_(SumExponents::kOfRest).add_(integers[0].to(at::kDouble));
  total.narrow(1, 0, columns_).mul_(to_device(units, device_).unsqueeze(1));
  total.select(1, columns_).mul_(to_device(weight_units, device_));
  return total.add(apart);
}

}  // namespace fedhpc
