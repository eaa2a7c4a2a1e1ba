#include "data/libsvm.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    const LibsvmTable table = parse_libsvm(bytes, "x");
    fuzz::expect(table.offsets.size() == table.labels.size() + 1);
    fuzz::expect(table.offsets.back() == static_cast<std::int64_t>(table.values.size()));
    for (const std::int32_t column : table.columns) {
      fuzz::expect(0 <= column && column < table.width);
    }
  });
}
