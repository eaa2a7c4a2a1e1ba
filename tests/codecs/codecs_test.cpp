#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

const std::vector<std::int64_t> kLengths{0, 1, 2, 7, 8, 9, 64, 1000, 79510};

template <typename T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  return {T{0},
          -T{0},
          T{1},
          Limits::max(),
          Limits::lowest(),
          Limits::min(),
          Limits::denorm_min(),
          -Limits::denorm_min(),
          Limits::infinity(),
          -Limits::infinity(),
          Limits::quiet_NaN(),
          -Limits::quiet_NaN(),
          static_cast<T>(std::nan("23")),
          T{65520},
          static_cast<T>(1e-7)};
}

/// Kinds of rows, each a value of every position.
template <typename T>
std::map<std::string, std::vector<T>> rows_of_length(std::int64_t n) {
  const std::vector<T> special = special_values<T>();
  Draws draws({.seed = 5, .purpose = Purpose::Codec, .round = static_cast<std::uint64_t>(n)});
  const auto random = [&] { return static_cast<T>(draws.normal()); };
  std::map<std::string, std::function<T(std::int64_t)>> kinds{
      {"zeros", [](std::int64_t) { return T{0}; }},
      {"minus zeros", [](std::int64_t) { return -T{0}; }},
      {"equal", [](std::int64_t) { return static_cast<T>(0.3); }},
      {"not a number", [](std::int64_t) { return std::numeric_limits<T>::quiet_NaN(); }},
      {"alternating", [](std::int64_t i) { return i % 2 == 0 ? T{0} : T{-2.5}; }},
      {"signs of zero", [](std::int64_t i) { return i % 3 == 0 ? -T{0} : T{0}; }},
      {"last alone", [n](std::int64_t i) { return i + 1 == n ? T{7} : T{0}; }},
      {"special", [&](std::int64_t i) { return special[i / 2 % special.size()]; }},
  };
  for (const double density : {0.01, 0.3, 0.9, 1.0}) {
    kinds[concat("density ", density)] = [&draws, random, density](std::int64_t) {
      return draws.uniform() < density ? random() : T{0};
    };
  }
  T plateau = 0;
  kinds["plateaus"] = [&draws, random, &plateau](std::int64_t) {
    if (draws.uniform() < 0.05) plateau = random();
    return plateau;
  };
  std::map<std::string, std::vector<T>> rows;
  for (const auto& [name, value] : kinds) {
    for (std::int64_t i = 0; i < n; ++i) rows[name].push_back(value(i));
    rows[name].resize(static_cast<std::size_t>(n));
  }
  return rows;
}

template <typename T>
Tensor tensor_of(const std::vector<T>& values) {
  Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())},
                            sizeof(T) == 8 ? at::kDouble : at::kFloat);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 ||
          std::memcmp(a.data_ptr(), b.data_ptr(), static_cast<std::size_t>(a.nbytes())) == 0);
}

template <typename T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Whether a codec compresses changes of models, so that a row sent on may lose more.
bool compresses(const Codec& codec) { return codec.fitted({}) != nullptr; }

/// Bytes by the formulas of the codecs' definitions, bits rounded up. Those of kmeans are
/// kmeans_test.cpp's.
template <typename T>
std::int64_t expected_bytes(const std::string& codec, const std::vector<T>& row) {
  const auto n = static_cast<double>(row.size());
  const double width = 8.0 * sizeof(T);
  double sent = 0;
  double plateaus = row.empty() ? 0 : 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!same_bits(row[i], T{0})) ++sent;
    if (i > 0 && !same_bits(row[i], row[i - 1])) ++plateaus;
  }
  const double index = n > 1 ? std::ceil(std::log2(n)) : 0;
  const double some = n > 0 ? 1 : 0;  // an empty row has no tensor
  const double chosen = n > 0 ? std::max(1.0, std::floor(0.01 * n + 0.5)) : 0;
  const auto to_bytes = [](double bits) { return 8 * std::ceil(bits / 8); };
  double blocks = 0;
  for (auto left = row.size(); left > 0; left &= left - 1) ++blocks;
  const std::map<std::string, double> bits{
      {"dense", n * width},
      {"dense32", n * 32},
      {"fp16", n * 16},
      {"bf16", n * 16},
      {"bitmap", n + sent * width},
      {"index_value", sent * (index + width)},
      {"run_length", plateaus * (index + width)},
      {"top_k", to_bytes(chosen < n ? chosen * index : 0) + chosen * width},
      {"rand_k", 64 * some + chosen * width},
      {"sign", to_bytes(n) + some * width},
      {"qsgd", to_bytes(4 * n) + some * width},
      {"terngrad", to_bytes(2 * n) + some * width},
      {"int8", to_bytes(8 * n) + some * width},
      {"int4", to_bytes(4 * n) + some * width},
      {"natural", to_bytes((width == 32 ? 9 : 12) * n)},
      {"drive", 64 * some + to_bytes(n) + blocks * width},
      {"power_sgd", n * width}};
  return static_cast<std::int64_t>(std::ceil(bits.at(codec) / 8));
}

template <typename T>
void expect_consistent(const std::string& name, const std::vector<T>& values) {
  const std::unique_ptr<Codec> codec = CodecChoice{.name = name}.make();
  const Tensor row = tensor_of(values);
  const std::vector<std::byte> bytes = codec->encode(row);
  const std::vector<std::int64_t> sizes = codec->encoded_bytes(row.unsqueeze(0));
  ASSERT_EQ(sizes.size(), 1U);
  EXPECT_EQ(sizes[0], static_cast<std::int64_t>(bytes.size()));
  if (name != "kmeans") {
    EXPECT_EQ(sizes[0], expected_bytes(name, values));
  }

  Tensor decoded = at::full_like(row, 42);
  codec->decode(bytes, decoded);
  const Tensor received = row.clone().unsqueeze(0);
  EXPECT_EQ(codec->transmit_(received), sizes);
  EXPECT_TRUE(same_bits(decoded, received[0]));
  if (codec->lossless(row.scalar_type())) {
    EXPECT_TRUE(same_bits(decoded, row));
  }
  EXPECT_TRUE(same_bits(row, tensor_of(values))) << "encoding leaves the row alone";
  if (compresses(*codec)) return;
  // Sent on, nothing more is lost.
  codec->transmit_(received);
  EXPECT_TRUE(same_bits(decoded, received[0]));
}

template <typename T>
void every_codec_and_row() {
  for (const std::int64_t n : kLengths) {
    for (const auto& [kind, values] : rows_of_length<T>(n)) {
      for (const std::string& name : codec_registry().names()) {
        SCOPED_TRACE(concat(name, ", ", n, " values: ", kind));
        expect_consistent(name, values);
      }
    }
  }
}

TEST(Codecs, SizeBytesAndTransmissionAgree) {
  every_codec_and_row<float>();
  every_codec_and_row<double>();
}

TEST(Codecs, RowsOfAStackAreIndependent) {
  // Columns 3 to 12 of wider rows; what lies beside them stays.
  const auto rows = rows_of_length<double>(9);
  const auto count = static_cast<std::int64_t>(rows.size());
  for (const std::string& name : codec_registry().names()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Codec> codec = CodecChoice{.name = name}.make();
    const Tensor wide = at::full({count, 20}, 1.0 / 3, at::kDouble);
    const Tensor stack = wide.narrow(1, 3, 9);
    std::int64_t c = 0;
    for (const auto& [kind, values] : rows) stack[c++].copy_(tensor_of(values));
    const std::vector<std::int64_t> sizes = codec->encoded_bytes(stack);
    codec->transmit_(stack);
    c = 0;
    for (const auto& [kind, values] : rows) {
      const Tensor alone = tensor_of(values).unsqueeze(0);
      EXPECT_EQ(sizes[static_cast<std::size_t>(c)], codec->encoded_bytes(alone)[0]) << kind;
      codec->transmit_(alone);
      EXPECT_TRUE(same_bits(stack[c++].clone(), alone[0])) << kind;
    }
    EXPECT_TRUE(wide.narrow(1, 0, 3).eq(1.0 / 3).all().item<bool>());
    EXPECT_TRUE(wide.narrow(1, 12, 8).eq(1.0 / 3).all().item<bool>());
  }
}

TEST(Codecs, WhatIsLossless) {
  std::set<std::string> lossless;
  std::set<std::string> linear;
  for (const std::string& name : codec_registry().names()) {
    const std::unique_ptr<Codec> codec = CodecChoice{.name = name}.make();
    for (const auto& [type, suffix] : {std::pair{at::kFloat, " 32"}, {at::kDouble, " 64"}}) {
      if (codec->lossless(type)) lossless.insert(name + suffix);
      if (codec->linear(type)) linear.insert(name + suffix);
    }
  }
  EXPECT_EQ(linear, (std::set<std::string>{"dense 32", "dense 64", "dense32 32"}));
  EXPECT_EQ(lossless, (std::set<std::string>{"bitmap 32", "bitmap 64", "dense 32", "dense 64",
                                             "dense32 32", "index_value 32", "index_value 64",
                                             "run_length 32", "run_length 64"}));
}

TEST(Codecs, NarrowTypesRoundAsAten) {
  Draws draws({.seed = 6, .purpose = Purpose::Codec});
  Tensor values = at::empty({1, 5000}, at::kFloat);
  for (int i = 0; i < 5000; ++i) {
    values.data_ptr<float>()[i] =
        static_cast<float>(draws.normal() * std::exp2(9 * draws.normal()));
  }
  for (const auto& [name, type] : {std::pair{"fp16", at::kHalf}, {"bf16", at::kBFloat16}}) {
    for (const at::ScalarType run : {at::kFloat, at::kDouble}) {
      const Tensor received = values.to(run, /*non_blocking=*/false, /*copy=*/true);
      CodecChoice{.name = name}.make()->transmit_(received);
      EXPECT_TRUE(same_bits(received, values.to(type).to(run))) << name;
      EXPECT_FALSE(same_bits(received, values.to(run))) << name;
    }
  }
  const Tensor doubles = at::full({1, 1}, 0.1, at::kDouble);
  CodecChoice{.name = "dense32"}.make()->transmit_(doubles);
  EXPECT_EQ(doubles.item<double>(), static_cast<double>(0.1F));
}

TEST(Codecs, AnUnknownNameNamesTheNearest) {
  try {
    CodecChoice{.name = "bitmp"}.make();
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "key 'algorithm.codec' cannot be 'bitmp'; allowed: one of: dense, dense32, fp16, "
                 "bf16, bitmap, "
                 "index_value, run_length, kmeans, top_k, rand_k, sign, qsgd, terngrad, int8, "
                 "int4, natural, drive, power_sgd; did you mean 'bitmap'?");
  }
}

TEST(Codecs, KeysTakeACodecsNameAndItsClusters) {
  OptionSet options;
  CodecChoice choice;
  choice.declare(options, "algorithm", "what is sent");
  EXPECT_EQ(options.entry("algorithm.codec").default_text, "dense");
  EXPECT_EQ(options.entry("algorithm.k").default_text, "16");
  const Origin file{Level::File, "run.ini:1"};
  options.assign("algorithm.codec", "kmeans", file);
  options.assign("algorithm.k", "2", file);
  EXPECT_EQ(choice.name, "kmeans");
  EXPECT_THROW(options.assign("algorithm.codec", "zip", file), ConfigError);
  for (const std::string k : {"0", "65537"}) {
    EXPECT_THROW(options.assign("algorithm.k", k, file), ConfigError) << k;
  }
  const Tensor row = tensor_of<float>({0, 1, 10, 11}).unsqueeze(0);
  choice.make()->transmit_(row);
  EXPECT_TRUE(same_bits(row[0], tensor_of<float>({0.5, 0.5, 10.5, 10.5})));
}

TEST(Codecs, OthersIgnoreTheNumberOfClusters) {
  const auto rows = rows_of_length<float>(64);
  for (const std::string& name : codec_registry().names()) {
    if (name == "kmeans") continue;
    for (const auto& [kind, values] : rows) {
      const Tensor row = tensor_of(values);
      EXPECT_EQ((CodecChoice{.name = name, .k = 2}.make()->encode(row)),
                CodecChoice{.name = name}.make()->encode(row))
          << name << ": " << kind;
    }
  }
}

TEST(Codecs, RefuseRowsTheyCannotRead) {
  const std::unique_ptr<Codec> codec = CodecChoice{.name = "fp16"}.make();
  EXPECT_THROW(codec->encoded_bytes(at::zeros({4})), std::logic_error);
  EXPECT_THROW(codec->encode(at::zeros({1, 4})), std::logic_error);
  EXPECT_THROW(codec->encoded_bytes(at::zeros({1, 4}, at::kLong)), std::logic_error);
  EXPECT_THROW(codec->transmit_(at::zeros({4, 3}).t()), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
