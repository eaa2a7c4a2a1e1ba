#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/codecs/codec.hpp"

#include "codecs/bits.hpp"

namespace fedhpc {

/// Makes a codec from a format that needs nothing but the row. It has functions of T = float or
/// double for size, encoding and decoding. A lossy one may have a quicker way than through the bytes
/// to put what arrives in the place of a row and return the size, transmit_.
template <typename Format>
class FormatCodec final : public Codec {
 public:
  FormatCodec(std::string name, Format format)
      : name_(std::move(name)), format_(std::move(format)) {}

  bool lossless(at::ScalarType type) const override {
    return with_type(type, []<typename T>() { return Format::template kLossless<T>; });
  }
  bool linear(at::ScalarType type) const override {
    return with_type(type, []<typename T>() { return Format::template kLinear<T>; });
  }
  std::unique_ptr<Codec> fitted(const PayloadFit& fit) const override {
    if constexpr (requires { format_.fit; }) {
      auto codec = std::make_unique<FormatCodec>(name_, format_);
      codec->format_.fit = fit;
      return codec;
    } else {
      return nullptr;
    }
  }

 private:
  template <typename T>
  using Values = std::span<const T>;
  using Bytes = std::span<const std::byte>;

  std::int64_t row_bytes(Values<float> row) const override { return format_.encoded_bytes(row); }
  std::int64_t row_bytes(Values<double> row) const override { return format_.encoded_bytes(row); }
  std::int64_t transmit_row_(std::span<float> row) const override { return transmit_(row); }
  std::int64_t transmit_row_(std::span<double> row) const override { return transmit_(row); }
  std::vector<std::byte> encode_row(Values<float> row) const override { return encode(row); }
  std::vector<std::byte> encode_row(Values<double> row) const override { return encode(row); }
  void decode_row(Bytes bytes, std::span<float> row) const override { decode(bytes, row); }
  void decode_row(Bytes bytes, std::span<double> row) const override { decode(bytes, row); }

  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    if constexpr (Format::template kLossless<T>) {
      return format_.encoded_bytes(Values<T>(row));
    } else if constexpr (requires { format_.transmit_(row); }) {
      return format_.transmit_(row);
    } else {
      const std::vector<std::byte> bytes = encode(Values<T>(row));
      decode(bytes, row);
      return static_cast<std::int64_t>(bytes.size());
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

  std::string name_;
  Format format_;
};

}  // namespace fedhpc
