#include "fedhpc/factorisations/options.hpp"

#include <algorithm>

#include "fedhpc/core/error.hpp"
#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/models/options.hpp"

#include "core/or_added.hpp"

namespace fedhpc {

namespace {

/// fedhpc's own factorisations whose names begin with one of `words`, or an added one. A method has
/// its say too: what model.factorisation = auto stands for is its own.
Condition of_kinds(const std::vector<std::string_view>& words) {
  std::vector<std::string> names;
  for (const auto& entry : factorisation_registry()) {
    for (const std::string_view word : words) {
      if (!entry.added && entry.name.starts_with(word)) names.push_back(entry.name);
    }
  }
  Condition condition =
      where_or_added(factorisation_registry(), "model.factorisation", std::move(names));
  condition.keys.emplace_back("algorithm.name");
  return condition;
}

/// The words of model.exclude; in the place of `auto` stand the method's own.
std::vector<std::string> excluded(const std::vector<std::string>& words,
                                  const std::vector<std::string>& of_method) {
  std::vector<std::string> layers;
  for (const std::string& word : words) {
    if (word == FactorisationOptions::kAuto) {
      layers.insert(layers.end(), of_method.begin(), of_method.end());
    } else {
      layers.push_back(word);
    }
  }
  std::erase(layers, FactorisationOptions::kNone);
  if (layers.empty()) layers.emplace_back(FactorisationOptions::kNone);
  return layers;
}

}  // namespace

void FactorisationOptions::declare(OptionSet& options) {
  std::vector<std::string> names{kAuto, kNone};
  for (const std::string& known : factorisation_registry().names()) names.push_back(known);
  options.add_choice("model.factorisation", name, names,
                     "what the weights of a layer are a function of (fedhpc list factorisations); "
                     "auto: what the method works with");
  options
      .add("model.rank", ranks, count_from(1),
           "rank of every factorised layer (of Kronecker decompositions the number of blocks), or "
           "one for each of them in order; unset: by model.compression")
      .acts(unless("model.factorisation", "none"));
  options
      .add("model.compression", compression, at_least(1.0),
           "full size over compressed size of each factorised layer, or of the whole model; "
           "gives ranks")
      .acts(unless("model.factorisation", "none"))
      .acts(where("model.rank", {""}));
  options
      .add("model.compression_scope", scope,
           Names<CompressionScope>{{"layer", CompressionScope::Layer},
                                   {"model", CompressionScope::Model}},
           "what model.compression counts: each factorised layer, or all trainable columns, those "
           "in full among them")
      .acts(unless("model.factorisation", "none"))
      .acts(where("model.rank", {""}));
  options
      .add_words(
          "model.exclude", exclude,
          "layers that are not factorised: their names or patterns of them (*.mlp.*), first, "
          "last, shortcuts, or none; auto, also beside others: as the method has it")
      .acts(unless("model.factorisation", "none"));
  options
      .add("model.conv_view", view,
           Names<std::optional<ConvView>>{
               {kAuto, {}}, {"raw", ConvView::Raw}, {"permuted", ConvView::Permuted}},
           "kernels [out, in, y, x] as a matrix [out y, in x]: the same numbers in the same "
           "order, or each where it belongs; auto: as the method has it")
      .acts(of_kinds({"low_rank", "kronecker", "lora", "ffa_lora"}))
      .acts(of_model_with_images());
  options
      .add("model.block_layout", blocks,
           Names<BlockLayout>{{"stacked", BlockLayout::Stacked}, {"grid", BlockLayout::Grid}},
           "blocks of a Kronecker decomposition: one below the other, or k by k")
      .acts(of_kinds({"kronecker"}));
  options
      .add_or_auto("model.lora_alpha", lora_alpha, above(0.0),
                   "alpha of an adapter (alpha / r) B A; auto: the rank r")
      .acts(of_kinds({"lora", "ffa_lora"}));
  options
      .add("model.rank_bound", bound,
           Names<RankBound>{{"none", RankBound::None}, {"full", RankBound::Full}},
           "what ranks by model.compression are at least: 1, or as FedPara's authors have it what "
           "leaves full rank possible, rounded up")
      .acts(of_kinds({"hadamard"}))
      .acts(where("model.rank", {""}));
}

void FactorisationOptions::resolve(const OptionSet& options, const std::string& method,
                                   const FactorisationUse& use) {
  const std::vector<std::string>& allowed = use.names;
  const bool overruled =
      options.origin("model.factorisation").level < options.origin("algorithm.name").level;
  if (allowed.empty() && overruled) name = kNone;
  const bool usable = name == kAuto || (allowed.empty() ? name == kNone
                                                        : std::find(allowed.begin(), allowed.end(),
                                                                    name) != allowed.end());
  const std::string with_method = concat("algorithm.name = ", method);
  if (!usable) {
    options.refuse(
        "model.factorisation",
        concat(with_method, "; allowed: ", allowed.empty() ? std::string(kNone) : join(allowed)));
  }
  if (name == kAuto) name = allowed.empty() ? kNone : allowed.front();
  if (!factorises()) return;
  if (exclude.size() > 1 && std::ranges::count(exclude, kNone) > 0) {
    options.refuse("model.exclude", "other layers beside none; allowed: none alone");
  }
  exclude = excluded(exclude, use.exclude);
  // Where the key has no effect, a message quotes what was given.
  if (!view && options.acts(options.entry("model.conv_view"))) view = use.view;
  passed = use.passed;
  const OptionSet::Entry& rank = options.entry("model.rank");
  const OptionSet::Entry& rate = options.entry("model.compression");
  if (ranks.empty()) return;
  const bool rate_is_set = is_given(rate.origin.level) || rate.print() != rate.default_text;
  if (rate_is_set && rate.origin.level == rank.origin.level) {
    throw ConfigError(concat(rate.origin.place, ": model.rank = ", rank.print(),
                             " and model.compression = ", compression,
                             " cannot both count; keep one of them"));
  }
  if (rate_is_set && rate.origin.level > rank.origin.level) {
    ranks.clear();
  } else {
    compression = FactorisationOptions{}.compression;
  }
}

}  // namespace fedhpc
