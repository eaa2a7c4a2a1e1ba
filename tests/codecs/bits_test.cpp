#include "codecs/bits.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

std::vector<std::byte> bytes_of(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Bits, FieldsLieLowestBitFirst) {
  BitWriter writer;
  writer.write(1, 1);
  writer.write(0, 2);
  writer.write(0x15, 5);  // 10101 above 001: 0xa9
  writer.write(0x3, 2);
  writer.align();
  writer.append(std::uint16_t{0x1234});
  EXPECT_EQ(writer.take(), bytes_of({0xa9, 0x03, 0x34, 0x12}));
  EXPECT_TRUE(writer.take().empty());
}

TEST(Bits, FieldsOfEveryWidthComeBack) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    Draws draws(
        {.seed = 1, .purpose = Purpose::Codec, .round = static_cast<std::uint64_t>(repeat)});
    std::vector<std::pair<std::uint64_t, int>> fields;
    BitWriter writer;
    std::int64_t bits = 0;
    for (int i = 0; i < 500; ++i) {
      const int width = static_cast<int>(draws.below(65));
      const std::uint64_t field = width == 0 ? 0 : draws.raw() >> (64 - width);
      fields.emplace_back(field, width);
      writer.write(field, width);
      bits += width;
    }
    const std::vector<std::byte> bytes = writer.take();
    EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), (bits + 7) / 8);
    BitReader reader(bytes, "test", 500);
    for (const auto& [field, width] : fields) ASSERT_EQ(reader.read(width), field) << width;
    reader.align();
    reader.finish();
  }
}

TEST(Bits, WriterRefusesFieldsThatDoNotFit) {
  BitWriter writer;
  EXPECT_THROW(writer.write(4, 2), std::logic_error);
  EXPECT_THROW(writer.write(0, 65), std::logic_error);
  writer.write(1, 1);
  EXPECT_THROW(writer.append(1.0F), std::logic_error);
}

TEST(Bits, ReaderRefusesWhatIsNotThere) {
  const std::vector<std::byte> bytes = bytes_of({0x81, 0x00});
  BitReader reader(bytes, "test", 7);
  EXPECT_EQ(reader.read(1), 1U);
  EXPECT_THROW(reader.align(), Error);
  EXPECT_THROW(reader.read(16), Error);
  BitReader rest(bytes, "test", 7);
  EXPECT_EQ(rest.read(8), 0x81U);
  EXPECT_THROW(rest.finish(), Error);
  EXPECT_THROW(rest.take<std::uint16_t>(), Error);
  try {
    rest.fail("why");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "codec test: a payload of 2 bytes cannot be decoded into 7 numbers: why");
  }
}

TEST(Bits, WidthOfAnIndex) {
  EXPECT_EQ(bits_for(0), 0);
  EXPECT_EQ(bits_for(1), 0);
  for (std::int64_t n = 2; n < 5000; ++n) {
    EXPECT_EQ(bits_for(n), std::ceil(std::log2(static_cast<double>(n)))) << n;
  }
  EXPECT_EQ(bits_for(79510), 17);
  EXPECT_EQ(bits_for(std::int64_t{1} << 40), 40);
  EXPECT_EQ(bits_for((std::int64_t{1} << 40) + 1), 41);
}

}  // namespace
}  // namespace fedhpc
