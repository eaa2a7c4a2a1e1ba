// What factors begin with.

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/factorisations/factor_map.hpp"

namespace fedhpc {

Tensor FactorMap::uniform(const Layer& layer, std::size_t place, const FactorShape& shape,
                          std::uint64_t seed, const FactorDraw& draw) const {
  const double of_layer = draw.like_layers ? std::sqrt(static_cast<double>(shape.fan_in)) : 1;
  const double range = *draw.range / of_layer;
  Tensor values = at::empty({shape.count()}, at::kDouble);
  auto* value = values.data_ptr<double>();
  Draws draws({.seed = seed,
               .purpose = Purpose::Factors,
               .pass = place,
               .client = layer.field,
               .round = draw.round});
  for (std::int64_t i = 0; i < shape.count(); ++i) value[i] = range * (2 * draws.uniform() - 1);
  return values;
}

Tensor FactorMap::normals(const Layer& layer, std::size_t factor, std::uint64_t seed,
                          const FactorDraw& draw) const {
  const FactorShape& shape = layer.factorisation->factors()[factor];
  const Field& field = factors_->field(concat(layer.name, ".", shape.name));
  const double deviation = draw.like_layers ? std::sqrt(2.0 / static_cast<double>(shape.fan_in))
                                            : layer.factorisation->initial_deviation();
  Tensor values = at::empty({shape.count()}, at::kDouble);
  auto* value = values.data_ptr<double>();
  Draws draws({.seed = seed,
               .purpose = Purpose::Factors,
               .client = static_cast<std::uint64_t>(&field - factors_->fields().data())});
  for (std::int64_t i = 0; i < shape.count(); ++i) value[i] = deviation * draws.normal();
  return values;
}

Rows FactorMap::initial(const Rows& model, std::uint64_t seed, const FactorDraw& draw) const {
  if (on_device(model.values)) {
    const Rows drawn = initial({on_host(model.values), model.layout}, seed, draw);
    return {drawn.values.to(model.values.device()), factors_};
  }
  const Rows initial{at::zeros({1, factors_->size()}, model.values.options()), factors_};
  for (const Layer& layer : layers_) {
    const std::vector<FactorShape>& shapes = layer.factorisation->factors();
    const std::size_t constants = layer.factorisation->constants().size();
    std::int64_t column = layer.factors;
    for (std::size_t f = 0; f < shapes.size(); ++f) {
      const Tensor place = initial.values[0].narrow(0, column, shapes[f].count());
      column += shapes[f].count();
      if (draw.zero && shapes[f].zero_for_zero) continue;
      place.copy_(draw.range ? uniform(layer, constants + f, shapes[f], seed, draw)
                             : normals(layer, f, seed, draw));
    }
  }
  copy_passed_(model, initial, Tag::None);
  return initial;
}

void FactorMap::draw_constants(std::uint64_t seed, const FactorDraw& draw,
                               const at::TensorOptions& options) {
  for (Layer& layer : layers_) {
    const std::vector<FactorShape>& shapes = layer.factorisation->constants();
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      values.push_back(uniform(layer, i, shapes[i], seed, draw));
    }
    set_constants(layer, values, options);
  }
}

}  // namespace fedhpc
