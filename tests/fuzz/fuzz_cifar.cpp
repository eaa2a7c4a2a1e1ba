#include "data/cifar.hpp"
#include "fuzz/harness.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    // Inputs are shorter than a record: the rest is filled up with what they hold.
    std::vector<std::uint8_t> records(bytes.begin(), bytes.end());
    const CifarLabels layout = {20, 100};
    if (!records.empty() && records.front() % 2 == 0) {
      records.resize((records.size() / 4 + 1) * (kCifarPixels + layout.size()), records.back());
    }
    const std::vector<std::uint8_t> labels = parse_cifar(records, "x", layout);
    fuzz::expect(labels.size() * (kCifarPixels + layout.size()) == records.size());
    for (const std::uint8_t label : labels) fuzz::expect(label < 100);
  });
}
