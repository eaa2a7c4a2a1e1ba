#include "fedhpc/factorisations/options.hpp"

#include <algorithm>

#include "fedhpc/core/error.hpp"
#include "fedhpc/factorisations/factorisation.hpp"

namespace fedhpc {

void FactorisationOptions::declare(OptionSet& options) {
  std::vector<std::string> names{kAuto, kNone};
  for (const auto& [known, sentence] : factorisation_registry()) names.push_back(known);
  options.add_choice("model.factorisation", name, names,
                     "what the weights of a layer are a function of (fedhpc list factorisations); "
                     "auto: what the method works with");
  options.add("model.rank", ranks,
              "rank of every factorised layer, or one for each of them in order; unset: by "
              "model.compression");
  options.add("model.compression", compression, at_least(1.0),
              "full size over compressed size of each factorised layer; gives its rank");
  options.add_words("model.exclude", exclude,
                    "layers that are not factorised: their names, or first and last");
}

void FactorisationOptions::resolve(const OptionSet& options, const std::string& method,
                                   const std::vector<std::string>& allowed) {
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
  for (const char* key : {"model.rank", "model.compression", "model.exclude"}) {
    if (factorises()) break;
    options.refuse_unless_default(
        key, concat(with_method, ", which trains weights in full; drop the key"));
  }
  const OptionSet::Entry& rank = options.entry("model.rank");
  const OptionSet::Entry& rate = options.entry("model.compression");
  if (ranks.empty()) return;
  const bool rate_is_set = rate.print() != rate.default_text;
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
