#include "fedhpc/codecs/codec.hpp"

#include "codecs/bitmap.hpp"
#include "codecs/index_value.hpp"
#include "codecs/per_value.hpp"
#include "codecs/run_length.hpp"

namespace fedhpc {

namespace {

/// A codec of a format that needs nothing but the row: functions of T = float or double for size,
/// encoding, decoding and, unless lossless, transmission in place.
template <typename Format>
class FormatCodec final : public Codec {
 public:
  explicit FormatCodec(const char* name) : name_(name) {}

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
    return Format::encoded_bytes(row);
  }
  std::int64_t row_bytes(Values<double> row, Values<double>) const override {
    return Format::encoded_bytes(row);
  }
  void transmit_row_(std::span<float> row, Values<float>) const override { transmit_(row); }
  void transmit_row_(std::span<double> row, Values<double>) const override { transmit_(row); }
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
  static void transmit_(std::span<T> row) {
    if constexpr (!Format::template kLossless<T>) Format::transmit_(row);
  }
  template <typename T>
  static std::vector<std::byte> encode(Values<T> row) {
    BitWriter writer;
    Format::encode(row, writer);
    return writer.take();
  }
  template <typename T>
  void decode(Bytes bytes, std::span<T> row) const {
    BitReader reader(bytes, name_, row.size());
    Format::decode(reader, row);
    reader.finish();
  }

  const char* name_;
};

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

std::unique_ptr<Codec> make_codec(const std::string& name, const std::string& place) {
#define FEDHPC_CODEC(id, Format, sentence) \
  if (name == #id) return std::make_unique<FormatCodec<Format>>(#id);
#include "codecs/codecs.def"
#undef FEDHPC_CODEC
  const std::vector<std::string> names = codec_names();
  throw ConfigError(concat(place, " cannot be '", name, "'; allowed: one of: ", join(names),
                           suggestion(nearest(name, names))));
}

const Codec& dense_codec() {
  static const std::unique_ptr<Codec> codec = make_codec("dense", "dense_codec");
  return *codec;
}

void declare_codec(OptionSet& options, std::string key, std::string& codec, std::string help) {
  options.add_choice(std::move(key), codec, codec_names(), std::move(help));
}

}  // namespace fedhpc
