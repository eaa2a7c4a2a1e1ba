#include <cstring>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

using Bytes = std::vector<std::byte>;

/// The bytes of little-endian words of any size, one after the other.
class Payload {
 public:
  template <typename T>
  Payload& add(T word) {
    const std::size_t start = bytes_.size();
    bytes_.resize(start + sizeof(T));
    std::memcpy(bytes_.data() + start, &word, sizeof(T));
    return *this;
  }
  operator Bytes() const { return bytes_; }  // NOLINT(google-explicit-constructor)

 private:
  Bytes bytes_;
};

using Byte = std::uint8_t;

/// Why `codec` refuses the bytes for n float32 numbers.
std::string refusal(const std::string& codec, const Bytes& bytes, std::int64_t n) {
  const Tensor row = at::full({n}, 0.5F);
  try {
    CodecChoice{.name = codec}.make()->decode(bytes, row);
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::string start = concat("codec ", codec, ": a payload of ", bytes.size(),
                                     " bytes cannot be decoded into ", n, " numbers: ");
    EXPECT_TRUE(message.starts_with(start)) << message;
    return message.substr(std::min(start.size(), message.size()));
  }
  return "accepted";
}

std::vector<float> decoded(const std::string& codec, const Bytes& bytes, std::int64_t n) {
  const Tensor row = at::full({n}, 0.5F);
  CodecChoice{.name = codec}.make()->decode(bytes, row);
  return {row.const_data_ptr<float>(), row.const_data_ptr<float>() + n};
}

TEST(Corrupt, AnotherLengthIsRefused) {
  const Tensor row = at::tensor({1.0F, 0.0F, 0.0F, 2.0F, 2.0F, -3.0F, 0.0F, 9.0F, 9.0F, 9.0F});
  for (const std::string& name : codec_registry().names()) {
    const std::unique_ptr<Codec> codec = CodecChoice{.name = name}.make();
    const Bytes bytes = codec->encode(row);
    const auto n = static_cast<std::int64_t>(bytes.size());
    int refused = 0;
    for (std::int64_t size = 0; size < n; ++size) {
      const Bytes cut(bytes.begin(), bytes.begin() + size);
      if (refusal(name, cut, 10) != "accepted") {
        ++refused;
      } else {
        // Fewer indices and values may make a row too: another one.
        EXPECT_EQ(name, "index_value") << "cut to " << size;
        const Tensor other = at::full({10}, 0.5F);
        codec->decode(cut, other);
        EXPECT_EQ(codec->encode(other), cut);
      }
    }
    EXPECT_GE(refused, n - 4) << name;
    for (int more = 1; more < 4; ++more) {
      Bytes longer = bytes;
      longer.resize(bytes.size() + static_cast<std::size_t>(more));
      EXPECT_NE(refusal(name, longer, 10), "accepted") << name << " and " << more;
    }
    EXPECT_NE(refusal(name, bytes, 0), "accepted") << name;
  }
}

TEST(Corrupt, Bitmap) {
  EXPECT_EQ(decoded("bitmap", Payload().add(Byte{0x05}).add(1.5F).add(-0.0F), 3),
            (std::vector<float>{1.5F, 0.0F, -0.0F}));
  EXPECT_EQ(refusal("bitmap", Payload().add(Byte{0x05}).add(1.5F).add(0.0F), 3),
            "a value sent is 0");
  EXPECT_EQ(refusal("bitmap", Payload().add(Byte{0x0d}).add(1.5F).add(2.5F), 3),
            "the bits that fill up a byte are not all 0");
  EXPECT_EQ(refusal("bitmap", Payload().add(Byte{0x05}).add(1.5F), 3), "it ends too early");
  EXPECT_EQ(refusal("bitmap", Payload().add(Byte{0x01}).add(1.5F).add(2.5F), 3),
            "4 bytes are left over");
}

TEST(Corrupt, IndexValue) {
  // Of 5 values those at 1 and 4: fields of 3 bits, 100001 and two zeros.
  EXPECT_EQ(decoded("index_value", Payload().add(Byte{0x21}).add(1.5F).add(2.5F), 5),
            (std::vector<float>{0, 1.5F, 0, 0, 2.5F}));
  EXPECT_EQ(refusal("index_value", Payload().add(Byte{0x0c}).add(1.5F).add(2.5F), 5),
            "index 1 does not follow in rising order");
  EXPECT_EQ(refusal("index_value", Payload().add(Byte{0x09}).add(1.5F).add(2.5F), 5),
            "index 1 does not follow in rising order");
  EXPECT_EQ(refusal("index_value", Payload().add(Byte{0x29}).add(1.5F).add(2.5F), 5),
            "index 5 is beyond the last");
  EXPECT_EQ(refusal("index_value", Payload().add(Byte{0xa1}).add(1.5F).add(2.5F), 5),
            "the bits that fill up a byte are not all 0");
  EXPECT_EQ(refusal("index_value", Payload().add(Byte{0x21}).add(1.5F).add(0.0F), 5),
            "a value sent is 0");
  EXPECT_EQ(refusal("index_value", Payload().add(Byte{0x21}).add(1.5F).add(Byte{0}), 5),
            "it does not hold whole entries of 35 bits");
  EXPECT_EQ(refusal("index_value", Payload().add(1.5F).add(1.5F), 1), "it holds 2 entries");
}

TEST(Corrupt, RunLength) {
  // Of 5 values plateaus of 1 and 4: fields of 3 bits hold the length less 1.
  EXPECT_EQ(decoded("run_length", Payload().add(Byte{0x18}).add(1.5F).add(2.5F), 5),
            (std::vector<float>{1.5F, 2.5F, 2.5F, 2.5F, 2.5F}));
  EXPECT_EQ(refusal("run_length", Payload().add(Byte{0x10}).add(1.5F).add(2.5F), 5),
            "its plateaus are 4 long");
  EXPECT_EQ(refusal("run_length", Payload().add(Byte{0x20}).add(1.5F).add(2.5F), 5),
            "its plateaus are longer than the row");
  EXPECT_EQ(refusal("run_length", Payload().add(Byte{0x18}).add(1.5F).add(1.5F), 5),
            "two neighbouring plateaus have the same value");
  EXPECT_EQ(refusal("run_length", Payload().add(Byte{0x58}).add(1.5F).add(2.5F), 5),
            "the bits that fill up a byte are not all 0");
  EXPECT_EQ(refusal("run_length", {}, 5), "its plateaus are 0 long");
}

TEST(Corrupt, KMeans) {
  // Of 5 values 2 different ones, 3 bits hold one less, 2 bits that 2 are the lower one, less 1;
  // the indices 0 1 1 0 1 are coded, last one first, as x = 0, 2, 5, 9, 17, 41.
  const auto payload = [] { return Payload().add(Byte{0x09}).add(-1.5F).add(2.5F); };
  EXPECT_EQ(decoded("kmeans", payload().add(Byte{41}), 5),
            (std::vector<float>{-1.5F, 2.5F, 2.5F, -1.5F, 2.5F}));
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0x0d}).add(-1.5F).add(2.5F), 5),
            "it holds 6 centres");
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0x1a}).add(-1.5F).add(2.5F), 5),
            "its clusters are larger than the row");
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0x29}).add(-1.5F).add(2.5F), 5),
            "the bits that fill up a byte are not all 0");
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0x09}).add(2.5F).add(-1.5F), 5),
            "centre 1 does not follow in rising order");
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0x09}).add(2.5F).add(2.5F), 5),
            "centre 1 does not follow in rising order");
  EXPECT_EQ(decoded("kmeans", Payload().add(Byte{0x09}).add(-0.0F).add(0.0F).add(Byte{41}), 5),
            (std::vector<float>{0, 0, 0, 0, 0}));
  EXPECT_EQ(refusal("kmeans", payload().add(Byte{0}), 5), "the code of the indices starts with 0");
  EXPECT_EQ(refusal("kmeans", payload().add(Byte{42}), 5), "index 0 is there 0 times, not 2");
  EXPECT_EQ(refusal("kmeans", payload().add(Byte{55}), 5),
            "the code of the indices does not end where it should");
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0x09}).add(-1.5F), 5), "it ends too early");
  EXPECT_EQ(refusal("kmeans", Payload().add(Byte{0}).add(1.5F).add(Byte{1}), 5),
            "the code of the indices does not end where it should");
}

TEST(Corrupt, RandomBytesAreRefusedOrUnderstood) {
  Draws draws({.seed = 8, .purpose = Purpose::Codec});
  for (const std::string& name : codec_registry().names()) {
    const std::unique_ptr<Codec> codec = CodecChoice{.name = name}.make();
    int understood = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::int64_t n = draws.below(4);
      Bytes bytes(static_cast<std::size_t>(draws.below(18)));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(draws.below(3));
      const Tensor row = at::full({n}, 0.5F);
      try {
        codec->decode(bytes, row);
      } catch (const Error&) {
        continue;
      }
      ++understood;
      if (codec->fitted({}) != nullptr) continue;  // compressors draw, or measure anew
      EXPECT_EQ(codec->encode(row), bytes) << name << ": a row has one encoding";
    }
    EXPECT_GT(understood, 50) << name;
  }
}

}  // namespace
}  // namespace fedhpc
