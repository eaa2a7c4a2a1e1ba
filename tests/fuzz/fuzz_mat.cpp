#include "data/mat.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    for (const MatArray& array : parse_mat(bytes, "x", {"X", "y"})) {
      fuzz::expect(array.data_offset + static_cast<std::size_t>(array.size()) <=
                   array.bytes.size());
    }
  });
}
