#include "data/unpack.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    if (bytes.size() % 2 == 0) {
      unpack_gzip(bytes, "x");
    } else {
      unpack_zlib(bytes, 128, "x");
    }
  });
}
