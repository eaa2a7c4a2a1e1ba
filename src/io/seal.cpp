#include "fedhpc/io/seal.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include <lzma.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

using Block = std::array<char, kSealBytes>;

constexpr std::array<char, 8> kSignature{'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};

/// What the seal of the bytes that are left in a stream is to say.
Block seal_of(std::istream& stream, const Tick& tick) {
  std::vector<char> part(std::size_t{1} << 20);
  std::uint64_t digest = 0;
  unsigned long long bytes = 0;
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())) ||
         stream.gcount() > 0) {
    const auto count = static_cast<std::size_t>(stream.gcount());
    digest = lzma_crc64(reinterpret_cast<const std::uint8_t*>(part.data()), count, digest);
    bytes += count;
    if (tick) tick();
  }
  Block block{};
  std::snprintf(block.data(), block.size(), "fedhpc checkpoint: %llu bytes, CRC-64/XZ %016llx\n",
                bytes, static_cast<unsigned long long>(digest));
  return block;
}

}  // namespace

void seal(const std::string& path, const Tick& tick) {
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(kSealBytes);
  const Block block = seal_of(stream, tick);
  stream.clear();  // the end was reached
  stream.seekp(0);
  stream.write(block.data(), block.size());
  stream.close();
  if (!stream) throw Error("its digest cannot be written");
}

Seal check_seal(const std::string& path, const Tick& tick) {
  std::ifstream stream(path, std::ios::binary);
  Block found{};
  stream.read(found.data(), found.size());
  if (!stream || std::equal(kSignature.begin(), kSignature.end(), found.begin())) return Seal::None;
  const Block expected = seal_of(stream, tick);
  if (stream.bad()) throw Error("it cannot be read to its end");
  return found == expected ? Seal::Whole : Seal::Broken;
}

}  // namespace fedhpc
