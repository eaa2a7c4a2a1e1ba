#include <type_traits>

#include "fedhpc/codecs/codec.hpp"

#include "codecs/bitmap.hpp"
#include "codecs/chosen.hpp"
#include "codecs/drive.hpp"
#include "codecs/format_codec.hpp"
#include "codecs/index_value.hpp"
#include "codecs/kmeans.hpp"
#include "codecs/levels.hpp"
#include "codecs/low_rank.hpp"
#include "codecs/natural.hpp"
#include "codecs/per_value.hpp"
#include "codecs/run_length.hpp"
#include "codecs/scaled_sign.hpp"
#include "core/or_added.hpp"

namespace fedhpc {

namespace {

template <typename Format>
std::unique_ptr<Codec> make(const CodecChoice& choice) {
  Format format;
  if constexpr (requires { &Format::k; }) format.k = choice.k;
  if constexpr (requires { &Format::fraction; }) format.fraction = choice.fraction;
  if constexpr (std::is_same_v<Format, Qsgd>) format.levels = choice.levels;
  if constexpr (requires { &Format::rank; }) format.rank = choice.rank;
  if constexpr (requires { &Format::contracts; }) {
    format.contracts = choice.feedback != ErrorFeedback::None;
  }
  return std::make_unique<FormatCodec<Format>>(choice.name, format);
}

/// The names of fedhpc's own codecs that lose something of values of that type.
std::vector<std::string> lossy(at::ScalarType type) {
  std::vector<std::string> names;
  for (const auto& entry : codec_registry()) {
    if (entry.added || entry.make({.name = entry.name})->lossless(type)) continue;
    names.push_back(entry.name);
  }
  return names;
}

constexpr std::int64_t kMostClusters = 65536;
constexpr std::int64_t kMostLevels = 32767;

}  // namespace

Registry<std::unique_ptr<Codec>(const CodecChoice&)>& codec_registry() {
  static Registry<std::unique_ptr<Codec>(const CodecChoice&)> registry({
#define FEDHPC_CODEC(name, Format, sentence) {#name, sentence, make<Format>},
#include "codecs/codecs.def"
#undef FEDHPC_CODEC
  });
  return registry;
}

void CodecChoice::declare(OptionSet& options, const std::string& section, std::string help,
                          Of payloads, const std::string& also) {
  const std::string key = section + ".codec";
  std::vector<std::string> names = codec_registry().names();
  if (payloads == Of::Models) {
    std::erase_if(names, [](const std::string& one) {
      return CodecChoice{.name = one}.compresses_changes();
    });
  }
  options.add_choice(key, name, std::move(names), std::move(help));
  const auto of = [&](const std::vector<std::string>& some) {
    const Condition up = where_or_added(codec_registry(), key, some);
    return also.empty() ? up : either(up, where_or_added(codec_registry(), also, some));
  };
  options
      .add(section + ".k", k, between<std::int64_t>(1, kMostClusters), "clusters of codec kmeans")
      .acts(of({"kmeans"}));
  if (payloads == Of::Models) return;
  options
      .add(section + ".codec_fraction", fraction, above_up_to(0.0, 1.0),
           "share of the columns that codecs top_k and rand_k send, at least one")
      .acts(of({"top_k", "rand_k"}));
  options
      .add(section + ".codec_levels", levels, between<std::int64_t>(1, kMostLevels),
           "s, levels of codec qsgd beside 0")
      .acts(of({"qsgd"}));
  options
      .add(section + ".codec_rank", rank, count_from(1),
           "r, rank of the products that codec power_sgd sends for a tensor")
      .acts(of({"power_sgd"}));
}

void CodecChoice::declare_feedback(OptionSet& options, const std::string& section, Of payloads) {
  Names<ErrorFeedback> names{{"none", ErrorFeedback::None}, {"ef21", ErrorFeedback::Ef21}};
  if (payloads == Of::Changes) names.insert(names.begin() + 1, {"ef14", ErrorFeedback::Ef14});
  const auto loses = [&](at::ScalarType type) {
    return where_or_added(codec_registry(), section + ".codec", lossy(type));
  };
  options
      .add(section + ".error_feedback", feedback, std::move(names),
           "what a sender does about what the upload's codec loses: nothing; send it later (Seide "
           "et al. 2014); or send changes of what the receiver has read (Richtarik et al. 2021)")
      .acts(either(loses(at::kFloat), both(loses(at::kDouble), where("run.dtype", {"float64"}))));
}

bool CodecChoice::compresses_changes() const { return make()->fitted({}) != nullptr; }

std::unique_ptr<Codec> CodecChoice::make() const {
  if (k < 1 || k > kMostClusters) {
    throw ConfigError(concat("a codec has k from 1 to ", kMostClusters, " clusters, and not ", k));
  }
  std::unique_ptr<Codec> codec = codec_registry().find(name, "algorithm.codec")(*this);
  codec->set_feedback(feedback);
  return codec;
}

const Codec& dense_codec() {
  static const std::unique_ptr<Codec> codec = CodecChoice{}.make();
  return *codec;
}

}  // namespace fedhpc
