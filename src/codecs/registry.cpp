#include "fedhpc/codecs/codec.hpp"

#include "codecs/bitmap.hpp"
#include "codecs/format_codec.hpp"
#include "codecs/index_value.hpp"
#include "codecs/kmeans.hpp"
#include "codecs/per_value.hpp"
#include "codecs/run_length.hpp"

namespace fedhpc {

namespace {

template <typename Format>
Format format_of(const CodecChoice& choice) {
  if constexpr (requires { &Format::k; }) {
    return {.k = choice.k};
  } else {
    return {};
  }
}

constexpr std::int64_t kMostClusters = 65536;

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const auto& [name, sentence] : codec_registry()) names.push_back(name);
  return names;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& codec_registry() {
  static const std::vector<std::pair<std::string, std::string>> registry = {
#define FEDHPC_CODEC(name, Format, sentence) {#name, sentence},
#include "codecs/codecs.def"
#undef FEDHPC_CODEC
  };
  return registry;
}

void CodecChoice::declare(OptionSet& options, const std::string& section, std::string help) {
  options.add_choice(section + ".codec", name, codec_names(), std::move(help));
  options
      .add(section + ".k", k, between<std::int64_t>(1, kMostClusters), "clusters of codec kmeans")
      .acts(where(section + ".codec", {"kmeans"}));
}

std::unique_ptr<Codec> CodecChoice::make() const {
  require(k >= 1 && k <= kMostClusters, "a codec has 1 to 65536 clusters");
#define FEDHPC_CODEC(id, Format, sentence) \
  if (name == #id) return std::make_unique<FormatCodec<Format>>(#id, format_of<Format>(*this));
#include "codecs/codecs.def"
#undef FEDHPC_CODEC
  const std::vector<std::string> names = codec_names();
  throw ConfigError(concat("there is no codec '", name, "'; allowed: one of: ", join(names),
                           suggestion(nearest(name, names))));
}

const Codec& dense_codec() {
  static const std::unique_ptr<Codec> codec = CodecChoice{}.make();
  return *codec;
}

}  // namespace fedhpc
