#include "fedhpc/algorithms/binary_update.hpp"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"
#include "fedhpc/math/vector_passes.hpp"
#include "fedhpc/rounds/to_device.hpp"

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

/// Numbers [C, L] of the host where rows lie, in their type.
Tensor beside(const Tensor& numbers, const Rows& rows) {
  return to_device(numbers.to(rows.values.scalar_type()), rows.values.device());
}

/// Uniform numbers in [0, 1), [C, n], of the type of `rows` and where they lie.
Tensor uniform_like(const Rows& rows, std::span<const DrawKey> keys) {
  require(static_cast<std::int64_t>(keys.size()) == rows.count(), "a key for every row");
  const Tensor drawn = at::empty(rows.values.sizes(), rows.values.options().device(at::kCPU));
  with_type(drawn.scalar_type(), [&]<typename T>() {
    T* next = drawn.data_ptr<T>();
    for (const DrawKey& key : keys) {
      Draws draws(key);
      for (std::int64_t i = 0; i < drawn.size(1); ++i) *next++ = static_cast<T>(draws.uniform());
    }
  });
  return to_device(drawn, rows.values.device());
}

}  // namespace

BinaryUpdate::BinaryUpdate(const LayoutPtr& model)
    : weights_(model, {.with = Tag::Trainable, .without = Tag::Uncompressed}) {
  for (const Field& field : weights_.layout()->fields()) {
    const std::int64_t begin = model->field(field.name).offset;
    tensors_.push_back({begin, begin + field.size});
  }
}

Tensor BinaryUpdate::sums_of_products(const Rows& x, const Rows& y) const {
  const std::vector<Field>& fields = weights_.layout()->fields();
  Tensor sums = at::empty({x.count(), count()}, at::kDouble);
  if (x.count() == 0) return sums;
  for (std::size_t l = 0; l < fields.size(); ++l) {
    const std::int64_t begin = fields[l].offset;
    const Tensor of_tensor = sums.select(1, static_cast<std::int64_t>(l));
    if (on_device(x.values)) {
      const Range range{begin, begin + fields[l].size};
      of_tensor.copy_(on_host(row_products_on_device(x.values, y.values, {range})[1]));
      continue;
    }
    with_type(x.values.scalar_type(), [&]<typename T>() {
      for (std::int64_t c = 0; c < x.count(); ++c) {
        const T* of_x = x.values.const_data_ptr<T>() + c * x.values.stride(0) + begin;
        const T* of_y = y.values.const_data_ptr<T>() + c * y.values.stride(0) + begin;
        of_tensor[c].fill_(inner_products(of_x, of_y, fields[l].size).ab);
      }
    });
  }
  return sums;
}

Tensor BinaryUpdate::mean_magnitudes(const Rows& m) const {
  Tensor means = sums_of_products(m, {m.values.sign(), m.layout});
  const std::vector<Field>& fields = weights_.layout()->fields();
  for (std::size_t l = 0; l < fields.size(); ++l) {
    column_of(means, l).div_(static_cast<double>(fields[l].size));
  }
  return means;
}

Rows BinaryUpdate::binarise(const Rows& m, const Tensor& alpha,
                            std::span<const DrawKey> keys) const {
  const Tensor steps = beside(alpha, m);
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
  const Tensor steps = beside(alpha, m);
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
  Tensor of_alpha = sums_of_products(g, slope);
  g.values.mul_(inside.values);
  return of_alpha;
}

}  // namespace fedhpc
