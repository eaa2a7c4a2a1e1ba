#include "fedhpc/factorisations/factor_map.hpp"

#include <algorithm>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"

#include "factorisations/factor_sizes.hpp"

namespace fedhpc {

namespace {

/// The values of a matrix, or of each of several matrices, of this shape with ones on the diagonal.
Tensor identity(const FactorShape& shape) {
  const std::size_t axes = shape.sizes.size();
  require(axes >= 2, "the identity is a matrix");
  return at::eye(shape.sizes[axes - 2], shape.sizes[axes - 1], at::kDouble)
      .expand(shape.sizes)
      .reshape({-1});
}

}  // namespace

FactorMap::FactorMap(const FactorisationOptions& options, LayoutPtr full, Summation summation)
    : full_(std::move(full)) {
  FactorForm form = options.form();
  form.summation = summation;
  const std::vector<const Field*> fields = factorised_fields(options, *full_);
  const std::vector<FactorSize> sizes = factor_sizes(options, fields, *full_);
  auto factors = std::make_shared<Layout>();
  for (const Field& field : full_->fields()) {
    if (std::find(fields.begin(), fields.end(), &field) == fields.end()) {
      if (!options.passed.hold(field.tags)) {
        left_out_.push_back({field.offset, field.offset + field.size});
        continue;
      }
      passed_.push_back({field.offset, factors->size(), field.size, field.tags});
      factors->add(field.name, field.shape, field.fan_in, field.tags, field.initial,
                   field.zero_row);
      continue;
    }
    const WeightShape shape{.sizes = field.shape, .fan_in = field.fan_in};
    Layer layer{
        .name = layer_of(field),
        .shape = shape,
        .field = static_cast<std::uint64_t>(&field - full_->fields().data()),
        .factorisation = make_factorisation(options.name, shape, sizes[layers_.size()], form),
        .weights = field.offset,
        .weight_count = field.size,
        .factors = factors->size()};
    for (const FactorShape& factor : layer.factorisation->factors()) {
      factors->add(concat(layer_of(field), ".", factor.name), factor.sizes, field.fan_in,
                   field.tags);
    }
    layers_.push_back(std::move(layer));
  }
  factors_ = std::move(factors);
}

Tensor FactorMap::factors_of(const Layer& layer, const Tensor& rows) const {
  return rows.narrow(1, layer.factors, layer.factorisation->count());
}

Tensor FactorMap::weights_of(const Layer& layer, const Tensor& rows) const {
  return rows.narrow(1, layer.weights, layer.weight_count);
}

std::vector<Field> FactorMap::factor_fields() const {
  std::vector<Field> fields;
  for (const Field& field : factors_->fields()) {
    if (!full_->contains(field.name)) fields.push_back(field);
  }
  return fields;
}

void FactorMap::set_constants(Layer& layer, const std::vector<Tensor>& values,
                              const at::TensorOptions& options) {
  if (values.empty()) return;
  layer.constants = at::cat(values).to(options);
  layer.factorisation->set_constants(layer.constants);
}

void FactorMap::set_constants_to_identity(const at::TensorOptions& options) {
  for (Layer& layer : layers_) {
    std::vector<Tensor> values;
    for (const FactorShape& shape : layer.factorisation->constants()) {
      values.push_back(identity(shape));
    }
    set_constants(layer, values, options);
  }
}

std::vector<NamedTensor> FactorMap::drawn(const Rows& factors) const {
  std::vector<NamedTensor> drawn;
  for (const Layer& layer : layers_) {
    const auto add = [&](const FactorShape& shape, const Tensor& values) {
      drawn.push_back({concat(layer.name, ".", shape.name), values.reshape(shape.sizes)});
    };
    std::int64_t column = 0;
    for (const FactorShape& shape : layer.factorisation->constants()) {
      add(shape, layer.constants.narrow(0, column, shape.count()));
      column += shape.count();
    }
    column = 0;
    const Tensor trained = factors_of(layer, factors.values)[0];
    for (const FactorShape& shape : layer.factorisation->factors()) {
      if (!shape.zero_for_zero) add(shape, trained.narrow(0, column, shape.count()));
      column += shape.count();
    }
  }
  return drawn;
}

ColumnRanges FactorMap::other_columns() const {
  ColumnRanges columns = left_out_;
  for (const Layer& layer : layers_) {
    columns.push_back({layer.weights, layer.weights + layer.weight_count});
  }
  return columns;
}

double FactorMap::squared_length(const Rows& model) const {
  double sum = 0;
  for (const Layer& layer : layers_) {
    const Tensor weights = weights_of(layer, model.values)[0].to(at::kDouble);
    sum += weights.dot(weights).item<double>();
  }
  return sum;
}

std::int64_t FactorMap::weight_count() const {
  std::int64_t count = 0;
  for (const Layer& layer : layers_) count += layer.weight_count;
  return count;
}

std::int64_t FactorMap::factor_count() const {
  std::int64_t count = 0;
  for (const Layer& layer : layers_) count += layer.factorisation->count();
  return count;
}

Tensor FactorMap::matrix_of_layer(std::int64_t l, const Rows& model) const {
  const Layer& layer = layers_[static_cast<std::size_t>(l)];
  return layer.factorisation->matrix_of(weights_of(layer, model.values)[0], layer.shape);
}

void FactorMap::copy_passed_(const Rows& from, const Rows& to, Tag tag) const {
  const bool up = from.layout == factors_;
  require((up && to.layout == full_) || (from.layout == full_ && to.layout == factors_),
          "columns pass between rows of factors and rows of weights");
  CopiedColumns run;  // columns side by side in both
  const auto copy = [&] {
    if (run.count == 0) return;
    to.values.narrow(1, up ? run.full : run.factors, run.count)
        .copy_(from.values.narrow(1, up ? run.factors : run.full, run.count));
  };
  for (const CopiedColumns& one : passed_) {
    if (tag != Tag::None && !has(one.tags, tag)) continue;
    if (one.full == run.full + run.count && one.factors == run.factors + run.count) {
      run.count += one.count;
      continue;
    }
    copy();
    run = one;
  }
  copy();
}

void FactorMap::expand_(const Rows& u, const Rows& w) {
  require(u.layout == factors_ && w.layout == full_ && u.count() == w.count(),
          "rows of factors become rows of weights");
  for (const Layer& layer : layers_) {
    layer.factorisation->expand_(factors_of(layer, u.values), weights_of(layer, w.values));
  }
  for (const auto& [begin, end] : left_out_) w.values.narrow(1, begin, end - begin).zero_();
  copy_passed_(u, w, Tag::None);
}

void FactorMap::pullback_(const Rows& u, const Rows& dw, const Rows& du) {
  require(u.layout == factors_ && dw.layout == full_ && du.layout == factors_ &&
              u.count() == dw.count() && u.count() == du.count(),
          "gradients of rows of weights become those of rows of factors");
  for (const Layer& layer : layers_) {
    layer.factorisation->pullback_(factors_of(layer, u.values), weights_of(layer, dw.values),
                                   factors_of(layer, du.values));
  }
  copy_passed_(dw, du, Tag::None);
}

void FactorMap::distance_gradient_(const Rows& u, const Rows& w, double scale, const Rows& du) {
  require(u.layout == factors_ && w.layout == full_ && du.layout == factors_ &&
              u.count() == w.count() && u.count() == du.count(),
          "rows of factors are compared with rows of weights");
  for (const Layer& layer : layers_) {
    layer.factorisation->distance_gradient_(factors_of(layer, u.values),
                                            weights_of(layer, w.values), scale,
                                            factors_of(layer, du.values));
  }
  if (on_device(du.values)) {
    for (const CopiedColumns& one : passed_) {
      Tensor gradient = du.values.narrow(1, one.factors, one.count);
      at::sub_out(gradient, u.values.narrow(1, one.factors, one.count),
                  w.values.narrow(1, one.full, one.count));
      gradient.mul_(scale);
    }
    return;
  }
  // Every factor step comes here for a few biases: operators would take longer than the numbers.
  with_type(du.values.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < du.count(); ++c) {
      const T* factors = u.values.const_data_ptr<T>() + c * u.values.stride(0);
      const T* full = w.values.const_data_ptr<T>() + c * w.values.stride(0);
      T* gradient = du.values.data_ptr<T>() + c * du.values.stride(0);
      for (const CopiedColumns& one : passed_) {
        for (std::int64_t i = 0; i < one.count; ++i) {
          gradient[one.factors + i] =
              static_cast<T>(scale) * (factors[one.factors + i] - full[one.full + i]);
        }
      }
    }
  });
}

Tensor FactorMap::fit_layer(std::int64_t l, const Rows& model, const Rows& start,
                            std::int64_t sweeps) {
  const Layer& layer = layers_[static_cast<std::size_t>(l)];
  return layer.factorisation->fit(weights_of(layer, model.values)[0],
                                  factors_of(layer, start.values)[0], sweeps);
}

Rows FactorMap::assemble(const std::vector<Tensor>& factors, const Rows& model) const {
  require(factors.size() == layers_.size(), "factors of every factorised layer");
  Rows row{at::empty({1, factors_->size()}, model.values.options()), factors_};
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    factors_of(layers_[l], row.values)[0].copy_(factors[l]);
  }
  copy_passed_(model, row, Tag::None);
  return row;
}

Rows FactorMap::fit(const Rows& models, const Rows& start, std::int64_t sweeps) {
  if (on_device(models.values)) {
    const Rows fitted =
        fit({on_host(models.values), full_}, {on_host(start.values), factors_}, sweeps);
    return {fitted.values.to(models.values.device()), factors_};
  }
  std::vector<Tensor> rows;
  for (std::int64_t c = 0; c < models.count(); ++c) {
    const Rows model{models.values.narrow(0, c, 1), full_};
    const Rows from{start.values.narrow(0, c, 1), factors_};
    std::vector<Tensor> factors;
    for (std::int64_t l = 0; l < layers(); ++l) {
      factors.push_back(fit_layer(l, model, from, sweeps));
    }
    rows.push_back(assemble(factors, model).values[0]);
  }
  return {at::stack(rows), factors_};
}

}  // namespace fedhpc
