#include "fedhpc/rounds/weighted_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

#include "rounds/side_stream.hpp"
#include "rounds/sum_exponents.hpp"

namespace fedhpc {

namespace {

// Adding 1.5 x 2^52 to |x| < 2^51 rounds it to an integer, which stands in the low bits: unlike
// llrint this is one vector instruction.
constexpr double kRounder = 6755399441055744.0;

/// integer += x, rounded; returns what that leaves.
double add_rounded(double x, std::int64_t& integer) {
  const double sum = x + kRounder;
  integer += std::bit_cast<std::int64_t>(sum) - std::bit_cast<std::int64_t>(kRounder);
  return x - (sum - kRounder);
}

/// Calls fn(segment, weight, row of T) for every row that weighs something.
template <typename Addends, typename Fn>
void each_row(const Addends& addends, const Fn& fn) {
  for (const auto& addend : addends) {
    with_type(addend.rows.scalar_type(), [&]<typename T>() {
      for (std::size_t c = 0; c < addend.weights.size(); ++c) {
        if (addend.weights[c] == 0) continue;
        fn(addend.segments[c], addend.weights[c],
           addend.rows.template const_data_ptr<T>() +
               static_cast<std::int64_t>(c) * addend.rows.stride(0));
      }
    });
  }
}

/// The largest |weight * row[i]|; infinite when one of them is not finite.
template <typename T>
double largest_of(double weight, const T* row, std::int64_t columns) {
  constexpr std::int64_t kMagnitude = 0x7fffffffffffffff;
  constexpr std::int64_t kInfinity = 0x7ff0000000000000;
  // Magnitudes of floating-point numbers are ordered like their bits, NaN above infinity; a
  // maximum of integers is a vector instruction whatever the order.
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < columns; ++i) {
    const double x = weight * static_cast<double>(row[i]);
    largest = std::max(largest, std::bit_cast<std::int64_t>(x) & kMagnitude);
  }
  return std::bit_cast<double>(std::min(largest, kInfinity));
}

/// The same over the finite ones only.
template <typename T>
double largest_finite_of(double weight, const T* row, std::int64_t columns) {
  double largest = 0;
  for (std::int64_t i = 0; i < columns; ++i) {
    const double x = std::abs(weight * static_cast<double>(row[i]));
    if (std::isfinite(x)) largest = std::max(largest, x);
  }
  return largest;
}

/// A segment's sums of integers, [P] each, and of what is not finite.
struct Integers {
  std::int64_t* high;
  std::int64_t* low;
  double* apart;
};

/// sums[i] += weight * row[i], scaled and rounded twice; what is not finite goes apart.
template <typename T>
void add_integers(double weight, const T* row, std::int64_t columns, double scale, bool finite,
                  const Integers& sums) {
  const auto add = [&](std::int64_t i, double x) {
    add_rounded(add_rounded(x * scale, sums.high[i]) * SumExponents::kOfRest, sums.low[i]);
  };
  if (finite) {
    for (std::int64_t i = 0; i < columns; ++i) add(i, weight * static_cast<double>(row[i]));
    return;
  }
  for (std::int64_t i = 0; i < columns; ++i) {
    const double x = weight * static_cast<double>(row[i]);
    if (std::isfinite(x)) {
      add(i, x);
    } else {
      sums.apart[i] += x;
    }
  }
}

}  // namespace

std::shared_ptr<SumContents> SumContents::copy() const {
  if (side) side->join();
  return std::make_shared<SumContents>(
      SumContents{.sums = sums.defined() ? sums.clone() : Tensor(), .addends = addends});
}

void SumContents::assign(const SumContents& other) {
  require(sums.defined() == other.sums.defined(), "the other sum is taken in the same way");
  if (side) side->join();
  if (sums.defined()) sums.copy_(other.sums);
  addends = other.addends;
  for (Addend& addend : addends) addend.rows = addend.rows.to(device);
}

WeightedSum::WeightedSum(std::int64_t segments, std::int64_t columns, Summation summation,
                         at::Device device)
    : segments_(segments), columns_(columns), summation_(summation), device_(device) {
  contents_->device = device;
  if (summation == Summation::Reproducible) return;
  contents_->sums =
      at::zeros({segments, columns + 1}, at::TensorOptions(at::kDouble).device(device));
  if (!device.is_cpu()) contents_->side = std::make_shared<SideStream>(device);
}

template <typename T>
void WeightedSum::add_fast(std::int64_t segment, std::span<const std::int64_t> members,
                           std::span<const double> weights, const Tensor& rows) {
  // Tiles keep the block sum in the nearest cache while the clients' rows stream by.
  constexpr std::int64_t kTile = 1024;
  std::array<T, kTile> block;
  double* sums = contents_->sums.data_ptr<double>() + segment * (columns_ + 1);
  for (std::int64_t begin = 0; begin < columns_; begin += kTile) {
    const std::int64_t width = std::min(kTile, columns_ - begin);
    block.fill(T{0});
    for (const std::int64_t c : members) {
      const T weight = static_cast<T>(weights[c]);
      const T* row = rows.const_data_ptr<T>() + c * rows.stride(0) + begin;
      for (std::int64_t i = 0; i < width; ++i) block[i] += weight * row[i];
    }
    for (std::int64_t i = 0; i < width; ++i) sums[begin + i] += static_cast<double>(block[i]);
  }
  for (const std::int64_t c : members) sums[columns_] += weights[c];
}

void WeightedSum::add(std::span<const std::int64_t> segments, std::span<const double> weights,
                      const Tensor& rows) {
  require(rows.dim() == 2 && rows.size(1) == columns_ && rows.stride(1) == 1,
          "rows have the columns of the sum");
  require(rows.device() == device_, "rows lie where they are summed");
  require(static_cast<std::int64_t>(weights.size()) == rows.size(0) &&
              segments.size() == weights.size(),
          "a weight and a segment per row");
  for (const double weight : weights) require(std::isfinite(weight), "weights are finite");
  for (const std::int64_t segment : segments) {
    require(0 <= segment && segment < segments_, "a segment of the sum");
  }
  if (weights.empty()) return;
  if (summation_ == Summation::Reproducible) {
    contents_->addends.push_back(
        {{segments.begin(), segments.end()}, {weights.begin(), weights.end()}, rows.clone()});
    return;
  }
  if (contents_->side) return add_on_device(segments, weights, rows);
  for (std::int64_t segment = 0; segment < segments_; ++segment) {
    std::vector<std::int64_t> members;
    for (std::size_t c = 0; c < weights.size(); ++c) {
      // What weighs nothing is left out even where it holds NaN.
      if (segments[c] == segment && weights[c] != 0)
        members.push_back(static_cast<std::int64_t>(c));
    }
    if (members.empty()) continue;
    with_type(rows.scalar_type(),
              [&]<typename T>() { add_fast<T>(segment, members, weights, rows); });
  }
}

Tensor WeightedSum::total(Topology& topology, Among ranks) {
  if (summation_ == Summation::Reproducible) {
    return device_.is_cpu() ? exact_total(topology, ranks) : exact_total_on_device(topology, ranks);
  }
  if (contents_->side) contents_->side->join();
  topology.sum_(ranks, contents_->sums);
  return contents_->sums;
}

Tensor WeightedSum::exact_total(Topology& topology, Among ranks) const {
  SumExponents exponents(segments_);
  each_row(contents_->addends, [&](std::int64_t s, double weight, const auto* row) {
    exponents.note(s, weight, largest_of(weight, row, columns_),
                   [&] { return largest_finite_of(weight, row, columns_); });
  });
  exponents.agree(topology, ranks);

  const std::int64_t stride = columns_ + 1;
  Tensor integers = at::zeros({2, segments_, stride}, at::kLong);
  Tensor apart = at::zeros({segments_, stride}, at::kDouble);  // what is not finite
  auto* high = integers.data_ptr<std::int64_t>();
  auto* low = high + segments_ * stride;
  auto* rest = apart.data_ptr<double>();
  const bool all_finite = exponents.all_finite();
  each_row(contents_->addends, [&](std::int64_t s, double weight, const auto* row) {
    add_integers(weight, row, columns_, exponents.scale(s), all_finite,
                 {high + s * stride, low + s * stride, rest + s * stride});
    add_rounded(weight * exponents.weight_scale(s), high[s * stride + columns_]);
  });
  topology.sum_(ranks, integers);
  if (!all_finite) topology.sum_(ranks, apart);

  Tensor total = at::empty({segments_, stride}, at::kDouble);
  auto* out = total.data_ptr<double>();
  for (std::int64_t s = 0; s < segments_; ++s) {
    const double unit = 1 / exponents.scale(s);  // a power of two: exact
    const double weight_unit = 1 / exponents.weight_scale(s);
    for (std::int64_t i = 0; i < stride; ++i) {
      const std::int64_t at = s * stride + i;
      const double sum =
          static_cast<double>(high[at]) + static_cast<double>(low[at]) / SumExponents::kOfRest;
      out[at] = sum * (i < columns_ ? unit : weight_unit) + rest[at];
    }
  }
  return total;
}

}  // namespace fedhpc
