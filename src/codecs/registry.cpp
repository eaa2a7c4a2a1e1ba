#include "fedhpc/codecs/codec.hpp"

#include "codecs/bitmap.hpp"
#include "codecs/format_codec.hpp"
#include "codecs/index_value.hpp"
#include "codecs/kmeans.hpp"
#include "codecs/per_value.hpp"
#include "codecs/run_length.hpp"
#include "core/or_added.hpp"

namespace fedhpc {

namespace {

template <typename Format>
std::unique_ptr<Codec> make(const CodecChoice& choice) {
  Format format;
  if constexpr (requires { &Format::k; }) format.k = choice.k;
  return std::make_unique<FormatCodec<Format>>(choice.name, format);
}

constexpr std::int64_t kMostClusters = 65536;

}  // namespace

Registry<std::unique_ptr<Codec>(const CodecChoice&)>& codec_registry() {
  static Registry<std::unique_ptr<Codec>(const CodecChoice&)> registry({
#define FEDHPC_CODEC(name, Format, sentence) {#name, sentence, make<Format>},
#include "codecs/codecs.def"
#undef FEDHPC_CODEC
  });
  return registry;
}

void CodecChoice::declare(OptionSet& options, const std::string& section, std::string help) {
  options.add_choice(section + ".codec", name, codec_registry().names(), std::move(help));
  options
      .add(section + ".k", k, between<std::int64_t>(1, kMostClusters), "clusters of codec kmeans")
      .acts(where_or_added(codec_registry(), section + ".codec", {"kmeans"}));
}

std::unique_ptr<Codec> CodecChoice::make() const {
  require(k >= 1 && k <= kMostClusters, "a codec has 1 to 65536 clusters");
  return codec_registry().find(name, "algorithm.codec")(*this);
}

const Codec& dense_codec() {
  static const std::unique_ptr<Codec> codec = CodecChoice{}.make();
  return *codec;
}

}  // namespace fedhpc
