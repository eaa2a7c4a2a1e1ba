#include "fedhpc/factorisations/factor_map.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {

namespace {

constexpr std::string_view kWeight = ".weight";

/// "fc1" of "fc1.weight".
std::string layer_of(const Field& field) {
  return field.name.substr(0, field.name.size() - kWeight.size());
}

/// Fields that a factorisation may stand for: weights of linear and convolutional layers.
std::vector<const Field*> candidates(const Layout& layout) {
  std::vector<const Field*> fields;
  for (const Field& field : layout.fields()) {
    const bool weights = field.shape.size() >= 2 && field.name.ends_with(kWeight);
    if (weights && !has(field.tags, Tag::Uncompressed)) fields.push_back(&field);
  }
  return fields;
}

std::vector<std::string> excluded_layers(const std::vector<std::string>& names,
                                         const std::vector<const Field*>& fields) {
  std::vector<std::string> layers;
  for (const Field* field : fields) layers.push_back(layer_of(*field));
  std::vector<std::string> excluded;
  for (const std::string& name : names) {
    if (name == "first" || name == "last") {
      if (!layers.empty()) excluded.push_back(name == "first" ? layers.front() : layers.back());
    } else if (std::find(layers.begin(), layers.end(), name) != layers.end()) {
      excluded.push_back(name);
    } else {
      throw ConfigError(concat("model.exclude names a layer '", name,
                               "' that the model does not have; allowed: first, last, ",
                               join(layers), suggestion(nearest(name, layers))));
    }
  }
  return excluded;
}

FactorSize size_of(const FactorisationOptions& options, std::size_t layer) {
  if (options.ranks.empty()) return CompressionRate{options.compression};
  return Rank{options.ranks.size() == 1 ? options.ranks.front() : options.ranks[layer]};
}

}  // namespace

FactorMap::FactorMap(const FactorisationOptions& options, LayoutPtr full) : full_(std::move(full)) {
  std::vector<const Field*> fields = candidates(*full_);
  const std::vector<std::string> excluded = excluded_layers(options.exclude, fields);
  std::erase_if(fields, [&](const Field* field) {
    return std::find(excluded.begin(), excluded.end(), layer_of(*field)) != excluded.end();
  });
  if (fields.empty()) throw ConfigError("model.exclude leaves no layer to factorise");
  if (options.ranks.size() > 1 && options.ranks.size() != fields.size()) {
    std::vector<std::string> layers;
    for (const Field* field : fields) layers.push_back(layer_of(*field));
    throw ConfigError(concat("model.rank gives ", options.ranks.size(), " ranks for ",
                             fields.size(), " factorised layers: ", join(layers)));
  }
  auto factors = std::make_shared<Layout>();
  for (const Field& field : full_->fields()) {
    if (std::find(fields.begin(), fields.end(), &field) == fields.end()) {
      passed_.push_back({field.offset, factors->size(), field.size, field.tags});
      factors->add(field.name, field.shape, field.fan_in, field.tags, field.initial);
      continue;
    }
    Layer layer{.factorisation =
                    make_factorisation(options.name, {.sizes = field.shape, .fan_in = field.fan_in},
                                       size_of(options, layers_.size())),
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

Rows FactorMap::initial(const Rows& model, std::uint64_t seed) const {
  Tensor row = at::empty({1, factors_->size()}, at::kDouble);
  double* values = row.data_ptr<double>();
  std::size_t layer = 0;
  for (std::size_t index = 0; index < factors_->fields().size(); ++index) {
    const Field& field = factors_->fields()[index];
    if (full_->contains(field.name)) continue;  // passes through
    if (layer + 1 < layers_.size() && field.offset >= layers_[layer + 1].factors) ++layer;
    const double deviation = layers_[layer].factorisation->initial_deviation();
    Draws draws({.seed = seed, .purpose = Purpose::Factors, .client = index});
    for (std::int64_t i = 0; i < field.size; ++i) {
      values[field.offset + i] = deviation * draws.normal();
    }
  }
  Rows initial{row.to(model.values.scalar_type()), factors_};
  copy_passed_(model, initial, Tag::None);
  return initial;
}

void FactorMap::copy_passed_(const Rows& from, const Rows& to, Tag tag) const {
  const bool up = from.layout == factors_;
  require((up && to.layout == full_) || (from.layout == full_ && to.layout == factors_),
          "columns pass between rows of factors and rows of weights");
  for (const Passed& one : passed_) {
    if (tag != Tag::None && !has(one.tags, tag)) continue;
    to.values.narrow(1, up ? one.full : one.factors, one.count)
        .copy_(from.values.narrow(1, up ? one.factors : one.full, one.count));
  }
}

void FactorMap::expand_(const Rows& u, const Rows& w) {
  require(u.layout == factors_ && w.layout == full_ && u.count() == w.count(),
          "rows of factors become rows of weights");
  for (const Layer& layer : layers_) {
    layer.factorisation->expand_(factors_of(layer, u.values), weights_of(layer, w.values));
  }
  copy_passed_(u, w, Tag::None);
}

Rows FactorMap::expand(const Rows& u) {
  Rows w{at::empty({u.count(), full_->size()}, u.values.options()), full_};
  expand_(u, w);
  return w;
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
  for (const Passed& one : passed_) {
    Tensor gradient = du.values.narrow(1, one.factors, one.count);
    at::sub_out(gradient, u.values.narrow(1, one.factors, one.count),
                w.values.narrow(1, one.full, one.count));
    gradient.mul_(scale);
  }
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
