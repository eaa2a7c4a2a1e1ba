#include "fedhpc/codecs/codec.hpp"

#include "codecs/bitmap.hpp"
#include "codecs/index_value.hpp"
#include "codecs/kmeans.hpp"
#include "codecs/per_value.hpp"
#include "codecs/run_length.hpp"

namespace fedhpc {

namespace {

/// A codec of a format that needs nothing but the row: functions of T = float or double for size,
/// encoding, decoding and, unless lossless, transmission in place, which gives the size too.
template <typename Format>
class FormatCodec final : public Codec {
 public:
  FormatCodec(const char* name, Format format) : name_(name), format_(format) {}

  bool lossless(at::ScalarType type) const override {
    return with_type(type, []<typename T>() { return Format::template kLossless<T>; });
  }
  bool linear(at::ScalarType type) const override {
    return with_type(type, []<typename T>() { return Format::template kLinear<T>; });
  }

 private:
  template <typename T>
  using Values = std::span<const T>;
  using Bytes = std::span<const std::byte>;

  std::int64_t row_bytes(Values<float> row, Values<float>) const override {
    return format_.encoded_bytes(row);
  }
  std::int64_t row_bytes(Values<double> row, Values<double>) const override {
    return format_.encoded_bytes(row);
  }
  std::int64_t transmit_row_(std::span<float> row, Values<float>) const override {
    return transmit_(row);
  }
  std::int64_t transmit_row_(std::span<double> row, Values<double>) const override {
    return transmit_(row);
  }
  std::vector<std::byte> encode_row(Values<float> row, Values<float>) const override {
    return encode(row);
  }
  std::vector<std::byte> encode_row(Values<double> row, Values<double>) const override {
    return encode(row);
  }
  void decode_row(Bytes bytes, std::span<float> row, Values<float>) const override {
    decode(bytes, row);
  }
  void decode_row(Bytes bytes, std::span<double> row, Values<double>) const override {
    decode(bytes, row);
  }

  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    if constexpr (Format::template kLossless<T>) {
      return format_.encoded_bytes(Values<T>(row));
    } else {
      return format_.transmit_(row);
    }
  }
  template <typename T>
  std::vector<std::byte> encode(Values<T> row) const {
    BitWriter writer;
    format_.encode(row, writer);
    return writer.take();
  }
  template <typename T>
  void decode(Bytes bytes, std::span<T> row) const {
    BitReader reader(bytes, name_, row.size());
    format_.decode(reader, row);
    reader.finish();
  }

  const char* name_;
  Format format_;
};

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
