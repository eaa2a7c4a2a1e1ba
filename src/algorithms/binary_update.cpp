#include "fedhpc/algorithms/binary_update.hpp"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

/// Columns of one tensor: those of its field.
Tensor part_of(const Rows& rows, const Field& field) {
  return rows.values.narrow(1, field.offset, field.size);
}

/// Number l of each client, [C, 1], beside rows.
Tensor column_of(const Tensor& numbers, std::size_t l) {
  return numbers.narrow(1, static_cast<std::int64_t>(l), 1);
}

/// Uniform numbers in [0, 1), [C, n], of the type of `rows` and where they lie.
Tensor uniform_like(const Rows& rows, std::span<const DrawKey> keys) {
  require(static_cast<std::int64_t>(keys.size()) == rows.count(), "a key for every row");
  const Tensor drawn = at::empty(rows.values.sizes(), rows.values.scalar_type());
  with_type(drawn.scalar_type(), [&]<typename T>() {
    T* next = drawn.data_ptr<T>();
    for (const DrawKey& key : keys) {
      Draws draws(key);
      for (std::int64_t i = 0; i < drawn.size(1); ++i) *next++ = static_cast<T>(draws.uniform());
    }
  });
  return beside(rows, drawn);
}

}  // namespace

BinaryUpdate::BinaryUpdate(const LayoutPtr& model)
    : weights_(model, {.with = Tag::Trainable, .without = Tag::Uncompressed}) {
  for (const Field& field : weights_.layout()->fields()) {
    const std::int64_t begin = model->field(field.name).offset;
    tensors_.push_back({begin, begin + field.size});
    parts_.push_back({field.offset, field.offset + field.size});
  }
}

Tensor BinaryUpdate::mean_magnitudes(const Rows& m) const {
  const Tensor means = inner_products(m, {m.values.sign(), m.layout}, parts_);
  const std::vector<Field>& fields = weights_.layout()->fields();
  for (std::size_t l = 0; l < fields.size(); ++l) {
    column_of(means, l).div_(static_cast<double>(fields[l].size));
  }
  return means;
}

Rows BinaryUpdate::binarise(const Rows& m, const Tensor& alpha,
                            std::span<const DrawKey> keys) const {
  const Tensor steps = beside(m, alpha);
  const Rows u{uniform_like(m, keys), m.layout};
  Rows b{at::empty_like(m.values), m.layout};
  const std::vector<Field>& fields = weights_.layout()->fields();
  for (std::size_t l = 0; l < fields.size(); ++l) {
    const Tensor step = column_of(steps, l);
    const Tensor above = (part_of(u, fields[l]) * (step * 2)).lt(part_of(m, fields[l]) + step);
    part_of(b, fields[l]).copy_(at::where(above, step, step.neg()));
  }
  return b;
}

Tensor BinaryUpdate::pull_back_(const Rows& g, const Rows& m, const Rows& b,
                                const Tensor& alpha) const {
  const Tensor steps = beside(m, alpha);
  const Rows slope{at::empty_like(m.values), m.layout};  // of b by alpha
  const Rows inside{at::empty_like(m.values), m.layout};
  const std::vector<Field>& fields = weights_.layout()->fields();
  for (std::size_t l = 0; l < fields.size(); ++l) {
    const Tensor step = column_of(steps, l);
    const Tensor x = part_of(m, fields[l]);
    part_of(inside, fields[l]).copy_(x.abs().le(step));
    // A step of 0 has updates of 0 inside: 0 / 0 is to be 0.
    const Tensor share = x / step.clamp_min(std::numeric_limits<float>::min());
    const Tensor sign = part_of(b, fields[l]).gt(0).to(x.scalar_type()) * 2 - 1;
    part_of(slope, fields[l]).copy_(sign - share * part_of(inside, fields[l]));
  }
  Tensor of_alpha = inner_products(g, slope, parts_);
  g.values.mul_(inside.values);
  return of_alpha;
}

}  // namespace fedhpc
