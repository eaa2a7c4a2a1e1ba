#include "factorisations/factor_sizes.hpp"

#include <algorithm>
#include <fnmatch.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

namespace fedhpc {

namespace {

constexpr std::string_view kWeight = ".weight";

/// Fields that a factorisation may stand for: weights of linear and convolutional layers.
std::vector<const Field*> candidates(const Layout& layout) {
  std::vector<const Field*> fields;
  for (const Field& field : layout.fields()) {
    const bool weights = field.shape.size() >= 2 && field.name.ends_with(kWeight);
    if (weights && !has(field.tags, Tag::Uncompressed)) fields.push_back(&field);
  }
  return fields;
}

std::vector<std::string> names_of(const std::vector<const Field*>& fields) {
  std::vector<std::string> names;
  for (const Field* field : fields) names.push_back(layer_of(*field));
  return names;
}

/// Convolutions of one pixel beside the residual path, named as in torchvision.
bool is_shortcut(const std::string& layer) {
  return layer.find(".downsample.") != std::string::npos;
}

/// The layers of this name, or of names like h.*.mlp.?, as a shell has it.
std::vector<std::string> matching(const std::string& pattern,
                                  const std::vector<std::string>& layers) {
  std::vector<std::string> found;
  std::copy_if(layers.begin(), layers.end(), std::back_inserter(found),
               [&](const std::string& layer) {
                 return fnmatch(pattern.c_str(), layer.c_str(), FNM_NOESCAPE) == 0;
               });
  return found;
}

std::vector<std::string> excluded_layers(const std::vector<std::string>& words,
                                         const std::vector<std::string>& layers) {
  std::vector<std::string> excluded;
  for (const std::string& word : words) {
    if (word == FactorisationOptions::kNone) continue;
    if (word == "first" || word == "last") {
      if (!layers.empty()) excluded.push_back(word == "first" ? layers.front() : layers.back());
    } else if (word == "shortcuts") {
      std::copy_if(layers.begin(), layers.end(), std::back_inserter(excluded), is_shortcut);
    } else if (const auto found = matching(word, layers); !found.empty()) {
      excluded.insert(excluded.end(), found.begin(), found.end());
    } else {
      throw ConfigError(concat("model.exclude names a layer '", word,
                               "' that the model does not have; allowed: first, last, shortcuts, ",
                               FactorisationOptions::kNone, ", ", join(layers),
                               suggestion(nearest(word, layers))));
    }
  }
  return excluded;
}

/// Numbers that the factors of all these fields hold together at one rate.
std::int64_t factor_count(const FactorisationOptions& options,
                          const std::vector<const Field*>& fields, double rate) {
  std::int64_t count = 0;
  for (const Field* field : fields) {
    const WeightShape shape{.sizes = field->shape, .fan_in = field->fan_in};
    count +=
        make_factorisation(options.name, shape, CompressionRate{rate}, options.form())->count();
  }
  return count;
}

/// The rate of every layer that compresses the whole model as asked for, as public code of FedMUD
/// finds it: the share 1 / rate is lowered by a thousandth until that of the model is less than a
/// thousandth above the goal, as far as it goes.
double rate_of_layers(const FactorisationOptions& options, const std::vector<const Field*>& fields,
                      const Layout& layout) {
  constexpr double kStep = 0.001;
  const double goal = 1 / options.compression;
  const auto all = static_cast<double>(layout.count(Tag::Trainable));
  auto others = static_cast<double>(layout.count(Tag::Trainable, options.passed));
  for (const Field* field : fields) {
    if (options.passed.hold(field->tags)) others -= static_cast<double>(field->size);
  }
  if (others / all - goal > kStep) {
    throw ConfigError(concat(
        "model.compression = ", options.compression,
        " of the whole model (model.compression_scope "
        "= model) cannot be met: the layers left in full are 1 / ",
        all / others, " of it; lower the compression or leave fewer layers in model.exclude"));
  }
  const auto of_model = [&](double share) {
    return (others + static_cast<double>(factor_count(options, fields, 1 / share))) / all;
  };
  double share = goal;
  while (share - kStep > 0 && of_model(share) - goal > kStep) share -= kStep;
  if (const double met = of_model(share); met - goal > kStep) {
    run_log().of_run(LogLevel::Warning,
                     concat("model.compression = ", options.compression,
                            " of the whole model is not met: the smallest factors leave 1 / ",
                            1 / met, " of it"));
  }
  return 1 / share;
}

}  // namespace

std::string layer_of(const Field& field) {
  return field.name.substr(0, field.name.size() - kWeight.size());
}

std::vector<const Field*> factorised_fields(const FactorisationOptions& options,
                                            const Layout& layout) {
  std::vector<const Field*> fields = candidates(layout);
  const std::vector<std::string> excluded = excluded_layers(options.exclude, names_of(fields));
  std::erase_if(fields, [&](const Field* field) {
    return std::find(excluded.begin(), excluded.end(), layer_of(*field)) != excluded.end();
  });
  if (fields.empty()) {
    throw ConfigError(concat("model.exclude = ", join(options.exclude), " leaves none of ",
                             candidates(layout).size(),
                             " layers to factorise; name fewer layers, or ",
                             FactorisationOptions::kNone, ", or take a model of more layers"));
  }
  return fields;
}

std::vector<FactorSize> factor_sizes(const FactorisationOptions& options,
                                     const std::vector<const Field*>& fields,
                                     const Layout& layout) {
  const std::vector<std::int64_t>& ranks = options.ranks;
  if (ranks.empty()) {
    const bool of_model = options.scope == CompressionScope::Model;
    const double rate = of_model ? rate_of_layers(options, fields, layout) : options.compression;
    return std::vector<FactorSize>(fields.size(), CompressionRate{rate});
  }
  if (ranks.size() == 1) return std::vector<FactorSize>(fields.size(), Rank{ranks.front()});
  if (ranks.size() != fields.size()) {
    throw ConfigError(concat("model.rank gives ", ranks.size(), " ranks for ", fields.size(),
                             " factorised layers: ", join(names_of(fields))));
  }
  std::vector<FactorSize> sizes;
  for (const std::int64_t rank : ranks) sizes.emplace_back(Rank{rank});
  return sizes;
}

}  // namespace fedhpc
