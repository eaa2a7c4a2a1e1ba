#include "data/idx.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    const std::size_t dimensions = bytes.size() % 2 == 0 ? 3 : 1;
    const IdxArray array = parse_idx({bytes.begin(), bytes.end()}, "x", dimensions);
    std::int64_t elements = 1;
    for (const std::int64_t side : array.shape) elements *= side;
    fuzz::expect(array.data_offset + static_cast<std::size_t>(elements) == bytes.size());
  });
}
