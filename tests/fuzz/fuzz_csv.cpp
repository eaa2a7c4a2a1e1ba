#include "data/csv.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    const CsvTable table = parse_csv(bytes, "x");
    fuzz::expect(table.cells.size() == table.columns * table.lines.size());
    fuzz::expect(table.header.empty() || table.header.size() == table.columns);
  });
}
