#include "fedhpc/models/row_numbers.hpp"

#include <cmath>
#include <type_traits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sqrt.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"

namespace fedhpc {

RowNumbers::RowNumbers(Tensor there) : there_(std::move(there)) {
  require(there_.dim() == 1 && there_.scalar_type() == at::kDouble, "a float64 number of each row");
}

std::int64_t RowNumbers::count() const {
  return there_.defined() ? there_.size(0) : static_cast<std::int64_t>(here_.size());
}

const std::vector<double>& RowNumbers::values() const& {
  if (there_.defined() && here_.empty()) {
    const Tensor fetched = on_host(there_).contiguous();
    here_.assign(fetched.const_data_ptr<double>(),
                 fetched.const_data_ptr<double>() + fetched.numel());
  }
  return here_;
}

Tensor RowNumbers::column(const Tensor& rows) const {
  require(rows.size(0) == count(), "a number of each row");
  const Tensor numbers = there_.defined() ? there_ : to_device(here_, rows.device());
  return numbers.to(rows.scalar_type()).unsqueeze(1);
}

template <typename Work>
RowNumbers RowNumbers::each(const RowNumbers& numbers, const Work& work) {
  if (numbers.there_.defined()) return RowNumbers(work(numbers.there_));
  RowNumbers result(numbers.here_);
  for (double& value : result.here_) value = work(value);
  return result;
}

template <typename Work>
RowNumbers RowNumbers::each(const RowNumbers& a, const RowNumbers& b, const Work& work) {
  require(a.count() == b.count() && a.there_.defined() == b.there_.defined(),
          "numbers of the same rows");
  if (a.there_.defined()) return RowNumbers(work(a.there_, b.there_));
  RowNumbers result(a.here_);
  for (std::size_t c = 0; c < b.here_.size(); ++c) {
    result.here_[c] = work(a.here_[c], b.here_[c]);
  }
  return result;
}

RowNumbers operator+(double x, const RowNumbers& numbers) {
  return RowNumbers::each(numbers, [&](const auto& number) { return number + x; });
}

RowNumbers operator*(double x, const RowNumbers& numbers) {
  return RowNumbers::each(numbers, [&](const auto& number) { return number * x; });
}

RowNumbers operator/(double x, const RowNumbers& numbers) {
  return RowNumbers::each(numbers, [&](const auto& number) { return x / number; });
}

RowNumbers operator/(const RowNumbers& numbers, double x) {
  return RowNumbers::each(numbers, [&](const auto& number) { return number / x; });
}

RowNumbers operator*(const RowNumbers& a, const RowNumbers& b) {
  return RowNumbers::each(a, b, [](const auto& x, const auto& y) { return x * y; });
}

RowNumbers operator/(const RowNumbers& a, const RowNumbers& b) {
  return RowNumbers::each(a, b, [](const auto& x, const auto& y) { return x / y; });
}

RowNumbers sqrt(const RowNumbers& numbers) {
  using std::sqrt;
  return RowNumbers::each(numbers, [](const auto& number) { return sqrt(number); });
}

RowNumbers exp(const RowNumbers& numbers) {
  using std::exp;
  return RowNumbers::each(numbers, [](const auto& number) { return exp(number); });
}

RowNumbers at_most(const RowNumbers& numbers, double most) {
  return RowNumbers::each(numbers, [&]<typename T>(const T& number) {
    if constexpr (std::is_same_v<T, Tensor>) {
      return number.masked_fill(number.lt(most).logical_not(), most);
    } else {
      return number < most ? number : most;
    }
  });
}

RowNumbers where_positive(const RowNumbers& of, const RowNumbers& numbers) {
  return RowNumbers::each(of, numbers, []<typename T>(const T& x, const T& number) {
    if constexpr (std::is_same_v<T, Tensor>) {
      return number.masked_fill(x.gt(0).logical_not(), 0);
    } else {
      return x > 0 ? number : 0;
    }
  });
}

namespace {

/// Calls work(row, factor) for the rows of the host that have a factor other than 0.
template <typename Work>
void each_moved_row(const RowNumbers& factors, const Work& work) {
  const std::vector<double>& values = factors.values();
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (values[c] != 0) work(static_cast<std::int64_t>(c), values[c]);
  }
}

/// rows += factors change(begin, count) on the columns that carry `tag`.
template <typename Change>
void add_on_device(const Rows& rows, const RowNumbers& factors, Tag tag, const Change& change) {
  const Tensor column = factors.column(rows.values);
  const Tensor still = column.eq(0);
  for (const auto& [begin, end] : rows.layout->ranges(tag)) {
    const Tensor moves = change(begin, end - begin).mul(column).masked_fill_(still, 0);
    rows.values.narrow(1, begin, end - begin).add_(moves);
  }
}

}  // namespace

void scale_(const Rows& rows, const RowNumbers& factors) {
  rows.values.mul_(factors.column(rows.values));
}

void add_columns_(const Rows& rows, const RowNumbers& factors, const Rows& other, Tag tag) {
  require(rows.layout == other.layout && factors.count() == rows.count(), "a factor of each row");
  if (on_device(rows.values)) {
    add_on_device(rows, factors, tag, [&](std::int64_t begin, std::int64_t count) {
      return other.values.narrow(1, begin, count);
    });
    return;
  }
  each_moved_row(factors, [&](std::int64_t c, double factor) {
    add_columns_(rows.narrow(c).values, other.narrow(c).values, factor, *rows.layout, tag);
  });
}

void add_difference_(const Rows& rows, const RowNumbers& factors, const Rows& a, const Rows& b,
                     Tag tag) {
  require(rows.layout == a.layout && rows.layout == b.layout && factors.count() == rows.count(),
          "a factor of each row");
  if (on_device(rows.values)) {
    add_on_device(rows, factors, tag, [&](std::int64_t begin, std::int64_t count) {
      return a.values.narrow(1, begin, count).sub(b.values.narrow(1, begin, count));
    });
    return;
  }
  each_moved_row(factors, [&](std::int64_t c, double factor) {
    add_difference_(rows.narrow(c).values, a.narrow(c).values, b.narrow(c).values, factor,
                    *rows.layout, tag);
  });
}

Tensor beside(const Rows& rows, const Tensor& numbers) {
  return to_device(numbers.to(rows.values.scalar_type()), rows.values.device());
}

Tensor float64_values(const Rows& rows) {
  return on_host(rows.values).to(at::kDouble).contiguous();
}

}  // namespace fedhpc
