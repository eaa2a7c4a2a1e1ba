#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/vector_passes.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/row_numbers.hpp"

namespace fedhpc {

std::size_t first_of_top(const Layout& layout, std::int64_t layers) {
  const std::vector<Field>& fields = layout.fields();
  std::size_t first = fields.size();
  for (std::int64_t found = 0; first > 0 && found < layers;) {
    const Field& field = fields[--first];
    // What has one index is a bias: it goes with its layer, as a norm goes with the one before it.
    if (field.shape.size() < 2 || has(field.tags, Tag::Norm)) continue;
    ++found;
    while (first > 0 && fields[first - 1].layer == field.layer) --first;
  }
  return first;
}

namespace {

std::vector<bool> fields_of(const Layout& whole, std::size_t first, const Columns& columns) {
  std::vector<bool> taken(whole.fields().size(), false);
  for (std::size_t f = first; f < taken.size(); ++f) {
    taken[f] = columns.hold(whole.fields()[f].tags);
  }
  return taken;
}

}  // namespace

RowPart::RowPart(LayoutPtr whole, const Columns& columns) : RowPart(std::move(whole), 0, columns) {}

RowPart::RowPart(LayoutPtr whole, std::size_t first, const Columns& columns)
    : RowPart(fields_of(*whole, first, columns), whole) {}

RowPart::RowPart(std::vector<bool> taken, LayoutPtr whole)
    : whole_(std::move(whole)), layout_(whole_), taken_(std::move(taken)) {
  if (std::ranges::find(taken_, false) == taken_.end()) {
    stretches_.push_back({0, 0, whole_->size()});
    return;
  }
  auto part = std::make_shared<Layout>();
  for (std::size_t f = 0; f < taken_.size(); ++f) {
    if (!taken_[f]) continue;
    const Field& field = whole_->fields()[f];
    const bool joins = !stretches_.empty() &&
                       stretches_.back().in_whole + stretches_.back().columns == field.offset;
    if (joins) {
      stretches_.back().columns += field.size;
    } else {
      stretches_.push_back({field.offset, part->size(), field.size});
    }
    part->add_copy(field);
  }
  part->set_needs_pairs(whole_->needs_pairs());
  layout_ = std::move(part);
}

RowPart RowPart::rest() const {
  std::vector<bool> others = taken_;
  others.flip();
  return {std::move(others), whole_};
}

Rows RowPart::of(const Rows& rows) const {
  require(rows.layout == whole_, "a part of rows of its own layout");
  if (is_whole()) return rows;
  const Rows part{at::empty({rows.count(), layout_->size()}, rows.values.options()), layout_};
  for (const Stretch& at : stretches_) {
    part.values.narrow(1, at.in_part, at.columns)
        .copy_(rows.values.narrow(1, at.in_whole, at.columns));
  }
  return part;
}

void RowPart::put_(const Rows& rows, const Rows& part) const {
  require(rows.layout == whole_ && part.layout == layout_, "a part goes where it is from");
  for (const Stretch& at : stretches_) {
    rows.values.narrow(1, at.in_whole, at.columns)
        .copy_(part.values.narrow(1, at.in_part, at.columns));
  }
}

void RowPart::add_two(const Rows& to, const Rows& from, const RowNumbers& fa, const Rows& a,
                      const RowNumbers& fb, const Rows& b) const {
  require(to.layout == whole_ && from.layout == whole_, "whole rows");
  require(a.layout == layout_ && b.layout == layout_, "rows of the part");
  const std::int64_t count = to.count();
  require(from.count() == count && a.count() == count && b.count() == count, "equally many rows");
  require(fa.count() == count && fb.count() == count, "two factors of each row");
  if (on_device(to.values)) {
    const Tensor of_a = fa.column(a.values);
    const Tensor of_b = fb.column(b.values);
    if (!to.values.is_same(from.values)) to.values.copy_(from.values);
    for (const Stretch& at : stretches_) {
      const Tensor moves = a.values.narrow(1, at.in_part, at.columns)
                               .mul(of_a)
                               .add_(b.values.narrow(1, at.in_part, at.columns).mul(of_b));
      to.values.narrow(1, at.in_whole, at.columns).add_(moves);
    }
    return;
  }
  with_type(to.values.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < count; ++c) {
      const auto row = static_cast<std::size_t>(c);
      const auto row_of = [c](const Tensor& rows) {
        return rows.const_data_ptr<T>() + c * rows.stride(0);
      };
      const T* of_a = row_of(a.values);
      const T* of_b = row_of(b.values);
      const T* x = row_of(from.values);
      T* out = to.values.data_ptr<T>() + c * to.values.stride(0);
      std::int64_t copied = 0;
      for (const Stretch& at : stretches_) {
        std::copy(x + copied, x + at.in_whole, out + copied);
        fedhpc::add_two(out + at.in_whole, x + at.in_whole, fa.values()[row], of_a + at.in_part,
                        fb.values()[row], of_b + at.in_part, at.columns);
        copied = at.in_whole + at.columns;
      }
      std::copy(x + copied, x + whole_->size(), out + copied);
    }
  });
}

}  // namespace fedhpc
