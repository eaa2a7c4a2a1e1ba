// codec_bytes CODEC K float32|float64 < ROWS > PAYLOADS: what a codec makes of rows. A row is its
// length and its numbers, a payload its length in bytes and these; lengths are 8 bytes.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include <ATen/ops/empty.h>

#include "fedhpc/codecs/codec.hpp"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: codec_bytes CODEC K float32|float64 < ROWS > PAYLOADS\n", stderr);
    return 2;
  }
  const fedhpc::CodecChoice choice{.name = argv[1], .k = std::atoll(argv[2])};
  const auto codec = choice.make();
  const at::ScalarType type = std::string(argv[3]) == "float64" ? at::kDouble : at::kFloat;
  std::int64_t count = 0;
  while (std::cin.read(reinterpret_cast<char*>(&count), sizeof count)) {
    const at::Tensor row = at::empty({count}, type);
    std::cin.read(static_cast<char*>(row.data_ptr()), static_cast<std::streamsize>(row.nbytes()));
    const auto bytes = codec->encode(row);
    const auto size = static_cast<std::int64_t>(bytes.size());
    std::fwrite(&size, 1, sizeof size, stdout);
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  }
}
