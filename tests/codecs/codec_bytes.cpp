// codec_bytes CODEC K float32|float64 < ROW > PAYLOAD: what a codec makes of a row of numbers as
// they lie in memory.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "fedhpc/codecs/codec.hpp"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: codec_bytes CODEC K float32|float64 < ROW > PAYLOAD\n", stderr);
    return 2;
  }
  const fedhpc::CodecChoice choice{.name = argv[1], .k = std::atoll(argv[2])};
  const at::ScalarType type = std::string(argv[3]) == "float64" ? at::kDouble : at::kFloat;
  std::vector<char> row{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const auto count = static_cast<std::int64_t>(row.size() / c10::elementSize(type));
  const auto bytes = choice.make()->encode(at::from_blob(row.data(), {count}, type));
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}
