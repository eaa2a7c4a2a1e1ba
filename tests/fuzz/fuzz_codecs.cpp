#include <vector>

#include "codecs/bitmap.hpp"
#include "codecs/chosen.hpp"
#include "codecs/drive.hpp"
#include "codecs/index_value.hpp"
#include "codecs/kmeans.hpp"
#include "codecs/levels.hpp"
#include "codecs/low_rank.hpp"
#include "codecs/natural.hpp"
#include "codecs/per_value.hpp"
#include "codecs/run_length.hpp"
#include "codecs/scaled_sign.hpp"
#include "fuzz/harness.hpp"

namespace fedhpc::fuzz {
namespace {

/// Whether a row that was decoded arrives bit for bit when it is sent again.
template <typename Format, typename T>
constexpr bool kArrives = Format::template kLossless<T>;
template <typename T>
constexpr bool kArrives<KMeans, T> = true;

/// Decodes `bytes` into n numbers of type T. A row has one encoding: what was understood is encoded
/// to the same bytes, but for the bits within a NaN of a rounding format.
template <typename Format, typename T>
void decode(std::span<const std::byte> bytes, std::size_t n) {
  const Format format{};
  BitReader reader(bytes, "codec", n);
  std::vector<T> row(n, T{0.5});
  format.decode(reader, std::span<T>(row));
  reader.finish();
  const std::span<const T> values(row);
  BitWriter writer;
  format.encode(values, writer);
  const std::vector<std::byte> again = writer.take();
  expect(static_cast<std::int64_t>(again.size()) == format.encoded_bytes(values));
  expect(again.size() == bytes.size());
  if constexpr (kArrives<Format, T>) {
    for (std::size_t i = 0; i < again.size(); ++i) expect(again[i] == bytes[i]);
  }
}

template <typename T>
void decode_as(unsigned codec, std::span<const std::byte> bytes, std::size_t n) {
  unsigned next = 0;
#define FEDHPC_CODEC(name, Format, sentence) \
  if (codec == next++) return decode<Format, T>(bytes, n);
#include "codecs/codecs.def"
#undef FEDHPC_CODEC
}

}  // namespace
}  // namespace fedhpc::fuzz

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read<Error>(data, size, [](std::span<const std::uint8_t> input) {
    // Codec and number type, n (few enough for thousands of inputs a second), payload.
    if (input.size() < 3) return;
    const unsigned codec = input[0] / 2U;
    const std::size_t n = input[1] + (std::size_t{256} * (input[2] % 16U));
    const std::span<const std::byte> payload = std::as_bytes(input.subspan(3));
    if (input[0] % 2 == 0) {
      fuzz::decode_as<float>(codec, payload, n);
    } else {
      fuzz::decode_as<double>(codec, payload, n);
    }
  });
}
