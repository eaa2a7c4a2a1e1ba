#include "fedhpc/codecs/compressors.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

// Codecs of methods that choose what they send: of some columns, the others travel in full.
namespace fedhpc {
namespace {

Tensor row_of(std::vector<double> values, at::ScalarType type) {
  return at::tensor(values, at::kDouble).to(type);
}

/// What arrives is the same by way of the bytes and without, and so is their number.
Tensor arrived(const Codec& codec, const Tensor& row) {
  const std::vector<std::byte> bytes = codec.encode(row);
  const Tensor decoded = at::empty_like(row);
  codec.decode(bytes, decoded);
  const Tensor transmitted = row.clone().unsqueeze(0);
  const auto size = static_cast<std::int64_t>(bytes.size());
  EXPECT_EQ(codec.encoded_bytes(row.unsqueeze(0)).front(), size);
  EXPECT_EQ(codec.transmit_(transmitted).front(), size);
  EXPECT_TRUE(transmitted[0].allclose(decoded, 0, 0, /*equal_nan=*/true));
  return decoded;
}

TEST(LargestCodec, SendsTheLargestAndWhatItDoesNotCompress) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Tensor row = row_of({9, 1, -3, 2, 0.5, 8, -2, 3, 7}, type);
    // Columns 1 to 4, 6 and 7 are compressed; of -3 and 3 both are sent, of 2 and -2 the first.
    const auto codec = make_largest_codec({{1, 5}, {6, 8}}, 3);
    EXPECT_TRUE(arrived(*codec, row).equal(row_of({9, 0, -3, 2, 0, 8, 0, 3, 7}, type)));
    const auto size = static_cast<std::int64_t>(row.itemsize());
    EXPECT_EQ(codec->encoded_bytes(row.unsqueeze(0)).front(), 2 + 6 * size);  // 3 fields of 3 bits
  }
}

TEST(LargestCodec, OfAllColumnsIsTheRow) {
  const Tensor row = row_of({9, 1, -3, 2}, at::kDouble);
  const auto codec = make_largest_codec({{0, 4}}, 4);
  EXPECT_TRUE(arrived(*codec, row).equal(row));
  EXPECT_EQ(codec->encoded_bytes(row.unsqueeze(0)).front(), 4 * 8);
}

TEST(LargestCodec, OfRandomRowsKeepsTheLargest) {
  Draws draws({.seed = 7, .purpose = Purpose::Codec});
  for (const std::int64_t k : {0, 1, 5, 99, 100}) {
    std::vector<double> values;
    for (int i = 0; i < 120; ++i) values.push_back(draws.normal());
    const Tensor row = row_of(values, at::kDouble);
    const Tensor result = arrived(*make_largest_codec({{10, 110}}, k), row);
    const Tensor inside = result.narrow(0, 10, 100);
    EXPECT_EQ(inside.ne(0).sum().item<std::int64_t>(), k);
    const Tensor kept = inside.ne(0);
    const Tensor all = row.narrow(0, 10, 100);
    EXPECT_TRUE(inside.masked_select(kept).equal(all.masked_select(kept)));
    if (k == 0 || k == 100) continue;
    EXPECT_GE(all.masked_select(kept).abs().min().item<double>(),
              all.masked_select(kept.logical_not()).abs().max().item<double>());
  }
}

TEST(LargestCodec, SendsWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor result =
      arrived(*make_largest_codec({{0, 3}}, 1), row_of({5, nan, 1e300}, at::kDouble));
  EXPECT_TRUE(std::isnan(result[1].item<double>()));
  EXPECT_EQ(result[2].item<double>(), 0);
}

TEST(LargestCodec, RefusesPlacesThatDoNotRise) {
  const auto codec = make_largest_codec({{0, 5}}, 2);
  const Tensor row = row_of({1, 2, 3, 4, 5}, at::kDouble);
  std::vector<std::byte> bytes = codec->encode(row);
  EXPECT_NO_THROW(codec->decode(bytes, row));
  for (const unsigned first : {0x3FU, 0x00U, 0x24U}) {  // beyond the last, twice 0, twice 4
    bytes[0] = static_cast<std::byte>(first);
    EXPECT_THROW(codec->decode(bytes, row), Error) << first;
  }
  bytes.pop_back();
  EXPECT_THROW(codec->decode(bytes, row), Error);
}

TEST(SignCodec, SendsABitForEachAndAMagnitudeForEachTensor) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Tensor row = row_of({7, 2, -2, 2, 0.5, -0.5, -8, 3, -3}, type);
    const auto codec = make_sign_codec({{1, 4}, {4, 6}, {7, 9}});
    EXPECT_TRUE(arrived(*codec, row).equal(row));
    const auto size = static_cast<std::int64_t>(row.itemsize());
    EXPECT_EQ(codec->encoded_bytes(row.unsqueeze(0)).front(), 1 + (3 + 2) * size);
  }
}

TEST(SignCodec, GivesOtherRowsTheirFirstMagnitude) {
  const auto codec = make_sign_codec({{0, 3}});
  const Tensor result = arrived(*codec, row_of({-2, 1, 5, 4}, at::kDouble));
  EXPECT_TRUE(result.equal(row_of({-2, 2, 2, 4}, at::kDouble)));
}

TEST(SignCodec, OfZerosIsZero) {
  const Tensor row = row_of({0, 0, -0.0, 1}, at::kDouble);
  EXPECT_TRUE(arrived(*make_sign_codec({{0, 3}}), row).equal(row));
}

TEST(SignCodec, RefusesANegativeMagnitudeAndCutBytes) {
  const auto codec = make_sign_codec({{0, 3}});
  const Tensor row = row_of({1, -1, 1}, at::kDouble);
  std::vector<std::byte> bytes = codec->encode(row);
  bytes.back() |= std::byte{0x80};  // the sign of the magnitude
  EXPECT_THROW(codec->decode(bytes, row), Error);
  bytes.pop_back();
  EXPECT_THROW(codec->decode(bytes, row), Error);
}

}  // namespace
}  // namespace fedhpc
