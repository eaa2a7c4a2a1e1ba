#include "reference/factorised_model.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

FactorisedModel::FactorisedModel(const Problem& problem, const FactorisationSettings& settings)
    : layout_(problem.layout), passed_(settings.passed) {
  std::vector<std::size_t> weights;
  for (std::size_t i = 0; i < layout_->fields().size(); ++i) {
    if (layout_->fields()[i].shape.size() >= 2) weights.push_back(i);
  }
  for (const std::size_t place : weights) {
    const std::string& name = layout_->fields()[place].name;
    const bool excluded =
        std::any_of(settings.exclude.begin(), settings.exclude.end(), [&](const std::string& word) {
          return (word == "first" && place == weights.front()) ||
                 (word == "last" && place == weights.back()) ||
                 (word == "shortcuts" && name.find("downsample") != std::string::npos) ||
                 name == word + ".weight";
        });
    if (!excluded) places_.push_back(place);
  }
  const double target = 1 / settings.compression;
  double ratio = target;
  while (settings.ranks.empty() && settings.whole_model &&
         share_at(settings, ratio) - target > .001 && ratio - .001 > 0) {
    ratio -= .001;
  }
  for (std::size_t l = 0; l < places_.size(); ++l) {
    const Field& weight = layout_->fields()[places_[l]];
    std::int64_t size = 0;
    if (settings.ranks.empty()) {
      size = size_for(settings, weight, ratio);
    } else {
      size = settings.ranks.size() == 1 ? settings.ranks[0] : settings.ranks.at(l);
    }
    layers_.emplace_back(settings, places_[l], weight, size);
  }
}

double FactorisedModel::share_at(const FactorisationSettings& settings, double ratio) const {
  const auto total = static_cast<double>(layout_->count(Tag::Trainable));
  auto trained = static_cast<double>(layout_->count(Tag::Trainable, passed_));
  for (const std::size_t place : places_) {
    const Field& weight = layout_->fields()[place];
    const FactorisedLayer layer(settings, place, weight, size_for(settings, weight, ratio));
    const std::int64_t replaced = passed_.hold(weight.tags) ? weight.size : 0;
    trained += static_cast<double>(layer.factor_size() - replaced);
  }
  return trained / total;
}

const FactorisedLayer* FactorisedModel::layer_at(std::size_t place) const {
  for (const FactorisedLayer& layer : layers_) {
    if (layer.place() == place) return &layer;
  }
  return nullptr;
}

Parameters FactorisedModel::row(const std::vector<Parameters>& factors,
                                const Parameters& model) const {
  Parameters u;
  std::size_t next = 0;
  for (std::size_t place = 0; place < model.size(); ++place) {
    if (layer_at(place) == nullptr) {
      u.push_back(model[place]);
    } else {
      u.insert(u.end(), factors[next].begin(), factors[next].end());
      ++next;
    }
  }
  return u;
}

Parameters FactorisedModel::compose(const Parameters& frozen,
                                    const std::vector<Parameters>& constants,
                                    const Parameters& u) const {
  Parameters model;
  std::size_t next = 0;
  std::size_t l = 0;
  for (std::size_t place = 0; place < frozen.size(); ++place) {
    const FactorisedLayer* const layer = layer_at(place);
    if (layer == nullptr) {
      model.push_back(u[next++]);
      continue;
    }
    const Parameters factors = factors_in(u, l);
    model.push_back(frozen[place].add(layer->expand(constants[l], factors)));
    next += factors.size();
    ++l;
  }
  return model;
}

Parameters FactorisedModel::factors_in(const Parameters& u, std::size_t l) const {
  auto first = static_cast<std::int64_t>(layers_[l].place());
  for (std::size_t before = 0; before < l; ++before) first += layers_[before].factors() - 1;
  return {u.begin() + first, u.begin() + first + layers_[l].factors()};
}

std::vector<std::size_t> FactorisedModel::moving() const {
  std::vector<std::size_t> places;
  std::size_t next = 0;
  for (std::size_t place = 0; place < layout_->fields().size(); ++place) {
    const FactorisedLayer* const layer = layer_at(place);
    const std::int64_t tensors = layer == nullptr ? 1 : layer->factors();
    const Tag tags = layout_->fields()[place].tags;
    const bool moves = has(tags, Tag::Trainable) && (layer != nullptr || passed_.hold(tags));
    for (std::int64_t i = 0; i < tensors; ++i, ++next) {
      if (moves) places.push_back(next);
    }
  }
  return places;
}

void FactorisedModel::take_buffers_(Parameters& u, const Parameters& model) const {
  std::size_t next = 0;
  for (std::size_t place = 0; place < model.size(); ++place) {
    const FactorisedLayer* const layer = layer_at(place);
    const Tag tags = layout_->fields()[place].tags;
    if (has(tags, Tag::Buffer) && passed_.hold(tags)) u[next] = model[place];
    next += layer == nullptr ? 1 : static_cast<std::size_t>(layer->factors());
  }
}

Parameters FactorisedModel::without_factorised(const Parameters& model) const {
  Parameters rest = model;
  for (const FactorisedLayer& layer : layers_) {
    rest[layer.place()] = at::zeros_like(rest[layer.place()]);
  }
  return rest;
}

std::vector<Parameters> FactorisedModel::normal_factors(std::uint64_t seed) const {
  std::vector<Parameters> factors;
  std::size_t before = 0;  // tensors that layers have more in the row of factors
  for (const FactorisedLayer& layer : layers_) {
    factors.emplace_back();
    for (std::size_t f = 0; f < layer.shapes().size(); ++f) {
      Draws draws(
          {.seed = seed, .purpose = Purpose::Factors, .client = layer.place() + before + f});
      const Tensor factor = at::empty(layer.shapes()[f], at::kDouble);
      double* const entry = factor.data_ptr<double>();
      for (std::int64_t j = 0; j < factor.numel(); ++j) {
        entry[j] = layer.normal_deviation(f) * draws.normal();
      }
      factors.back().push_back(factor);
    }
    before += layer.shapes().size() - 1;
  }
  return factors;
}

std::int64_t FactorisedModel::row_size() const {
  std::int64_t size = factor_size();
  for (std::size_t place = 0; place < layout_->fields().size(); ++place) {
    const Field& field = layout_->fields()[place];
    if (layer_at(place) == nullptr && passed_.hold(field.tags)) size += field.size;
  }
  return size;
}

std::int64_t FactorisedModel::factor_size() const {
  std::int64_t size = 0;
  for (const FactorisedLayer& layer : layers_) size += layer.factor_size();
  return size;
}

std::int64_t FactorisedModel::weights_factored() const {
  std::int64_t size = 0;
  for (const FactorisedLayer& layer : layers_) size += layer.weights();
  return size;
}

}  // namespace fedhpc::reference
