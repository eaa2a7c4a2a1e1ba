#include "fedhpc/models/layout.hpp"

#include <algorithm>

#include "fedhpc/core/checked.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"
#include "fedhpc/models/device_kernels.hpp"

namespace fedhpc {

namespace {

constexpr const char* kWeights = "the weights of the model";

template <typename T>
const T* row_of(const Tensor& rows, std::int64_t c) {
  return rows.const_data_ptr<T>() + c * rows.stride(0);
}

/// Whether places follow each other.
bool are_neighbours(std::span<const std::int64_t> places) {
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i] != places[0] + static_cast<std::int64_t>(i)) return false;
  }
  return !places.empty();
}

}  // namespace

std::size_t Layout::add(std::string name, std::vector<std::int64_t> shape, std::int64_t fan_in,
                        Tag tags, Initial initial, std::int64_t zero_row) {
  require(name.find('/') == std::string::npos, "a parameter's name holds no '/'");
  require(!contains(name), "a parameter's name is unique");
  std::int64_t size = 1;
  for (const std::int64_t length : shape) size = checked_product(kWeights, {size, length});
  fields_.push_back(
      {std::move(name), std::move(shape), size_, size, fan_in, tags, initial, zero_row, layer_});
  size_ = checked_sum(kWeights, {size_, size});
  return fields_.size() - 1;
}

std::size_t Layout::add_copy(const Field& field) {
  layer_ = field.layer;
  return add(field.name, field.shape, field.fan_in, field.tags, field.initial, field.zero_row);
}

bool Layout::contains(const std::string& name) const {
  return std::any_of(fields_.begin(), fields_.end(),
                     [&](const Field& field) { return field.name == name; });
}

const Field& Layout::field(const std::string& name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const Field& field) { return field.name == name; });
  require(found != fields_.end(), "the layout has a field of this name");
  return *found;
}

ColumnRanges Layout::ranges(Tag tag, const Columns& among) const {
  ColumnRanges ranges;
  for (const Field& field : fields_) {
    if (!has(field.tags, tag) || !among.hold(field.tags)) continue;
    if (!ranges.empty() && ranges.back().last == field.offset) {
      ranges.back().last += field.size;
    } else {
      ranges.push_back({field.offset, field.offset + field.size});
    }
  }
  return ranges;
}

std::int64_t Layout::count(Tag tag, const Columns& among) const {
  std::int64_t columns = 0;
  for (const auto& [begin, end] : ranges(tag, among)) columns += end - begin;
  return columns;
}

Rows Rows::clone() const { return {values.clone(), layout}; }

Rows Rows::at(std::span<const std::int64_t> places) const {
  if (are_neighbours(places)) {
    return narrow(places.front(), static_cast<std::int64_t>(places.size()));
  }
  return {values.index_select(0, to_device(places, values.device())), layout};
}

void Rows::put_(std::span<const std::int64_t> places, const Rows& rows) const {
  require(rows.layout == layout && rows.count() == static_cast<std::int64_t>(places.size()),
          "a row of the layout for each place");
  if (!are_neighbours(places)) {
    values.index_copy_(0, to_device(places, values.device()), rows.values);
    return;
  }
  const Tensor there = values.narrow(0, places.front(), rows.count());
  if (there.const_data_ptr() != rows.values.const_data_ptr()) there.copy_(rows.values);
}

Rows Rows::replicate(std::int64_t clients) const {
  require(count() == 1, "a single row is replicated");
  return {values.repeat({clients, 1}), layout};
}

namespace {

/// Rows of one layout, or one side a single row that stands for all.
void require_same_columns(const Rows& a, const Rows& b) {
  require(a.layout == b.layout, "rows of different layouts do not mix");
}

}  // namespace

Rows operator-(const Rows& a, const Rows& b) {
  require_same_columns(a, b);
  return {a.values.sub(b.values), a.layout};
}

Rows operator*(double factor, const Rows& rows) { return {rows.values.mul(factor), rows.layout}; }

Rows operator+(const Rows& a, const Rows& b) {
  require_same_columns(a, b);
  return {a.values.add(b.values), a.layout};
}

namespace {

/// rows[c, i] += factor * term(c, i) on the columns that carry `tag`; `term` gets the type as a
/// value.
template <typename Term>
void add_to_columns(const Tensor& rows, double factor, const Layout& layout, Tag tag, Term&& term) {
  const auto ranges = layout.ranges(tag);
  with_type(rows.scalar_type(), [&]<typename T>() {
    const T scale = static_cast<T>(factor);
    for (std::int64_t c = 0; c < rows.size(0); ++c) {
      T* row = rows.data_ptr<T>() + c * rows.stride(0);
      const auto of_row = term(T{}, c);
      for (const auto& [begin, end] : ranges) {
        for (std::int64_t i = begin; i < end; ++i) row[i] += scale * of_row(i);
      }
    }
  });
}

}  // namespace

void add_columns_(const Tensor& rows, const Tensor& other, double factor, const Layout& layout,
                  Tag tag) {
  require(rows.sizes() == other.sizes() && rows.size(1) == layout.size(), "columns of equal rows");
  if (on_device(rows)) {
    for (const auto& [begin, end] : layout.ranges(tag)) {
      device_kernels<ModelKernels>().accumulate({.type = real_of(rows),
                                                 .rows = rows.size(0),
                                                 .columns = end - begin,
                                                 .values = device_columns(other, begin),
                                                 .sink = {device_columns(rows, begin), factor, 1}});
    }
    return;
  }
  add_to_columns(rows, factor, layout, tag, [&](auto type, std::int64_t c) {
    return [from = row_of<decltype(type)>(other, c)](std::int64_t i) { return from[i]; };
  });
}

void add_difference_(const Tensor& rows, const Tensor& a, const Tensor& b, double factor,
                     const Layout& layout, Tag tag) {
  require(rows.sizes() == a.sizes() && rows.sizes() == b.sizes() && rows.size(1) == layout.size(),
          "columns of equal rows");
  if (on_device(rows)) {
    for (const auto& [begin, end] : layout.ranges(tag)) {
      const std::int64_t count = end - begin;
      rows.narrow(1, begin, count)
          .add_(a.narrow(1, begin, count).sub(b.narrow(1, begin, count)), factor);
    }
    return;
  }
  add_to_columns(rows, factor, layout, tag, [&](auto type, std::int64_t c) {
    return [plus = row_of<decltype(type)>(a, c),
            minus = row_of<decltype(type)>(b, c)](std::int64_t i) { return plus[i] - minus[i]; };
  });
}

void approach_(const Rows& rows, const Rows& target, double share) {
  require_same_columns(rows, target);
  add_difference_(rows.values, target.values, rows.values, share, *rows.layout, Tag::Trainable);
}

void scale_columns_(const Rows& rows, double factor, Tag tag) {
  for (const auto& [begin, end] : rows.layout->ranges(tag)) {
    const Tensor columns = rows.values.narrow(1, begin, end - begin);
    factor == 0 ? columns.zero_() : columns.mul_(factor);  // 0 times infinity is no number
  }
}

void copy_columns_(const Rows& rows, const Rows& from, Tag tag) {
  require_same_columns(rows, from);
  for (const auto& [begin, end] : rows.layout->ranges(tag)) {
    rows.values.narrow(1, begin, end - begin).copy_(from.values.narrow(1, begin, end - begin));
  }
}

Rows& operator+=(Rows& a, const Rows& b) {
  require_same_columns(a, b);
  a.values.add_(b.values);
  return a;
}

}  // namespace fedhpc
