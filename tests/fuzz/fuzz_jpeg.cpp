#include "data/jpeg.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    constexpr int kSide = 64;
    static std::uint8_t pixels[3 * kSide * kSide];
    decode_jpeg(bytes, "x", kSide, kSide, pixels);
  });
}
