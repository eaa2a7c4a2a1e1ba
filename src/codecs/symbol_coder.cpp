#include "codecs/symbol_coder.hpp"

#include <algorithm>
#include <cstddef>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

// A state in the middle of coding is in [2^24 n, 2^32 n).
constexpr int kLow = 24;
constexpr int kHigh = 32;

}  // namespace

SymbolCoder::SymbolCoder(std::span<const std::int64_t> counts) {
  for (const std::int64_t count : counts) {
    require(count >= 1, "every symbol is there");
    symbols_.push_back({static_cast<std::uint64_t>(count), total_, 1 / static_cast<double>(count)});
    total_ += static_cast<std::uint64_t>(count);
  }
  require(total_ < std::uint64_t{1} << 31, "states fit into 63 bits");
}

template <typename Emit>
void SymbolCoder::each_byte(std::span<const std::int32_t> symbols, const Emit& emit) const {
  std::uint64_t state = 0;
  for (std::size_t i = symbols.size(); i-- > 0;) {
    const Symbol& symbol = symbols_[static_cast<std::size_t>(symbols[i])];
    for (; state >> kHigh >= symbol.count; state >>= 8) emit(static_cast<std::uint8_t>(state));
    // The quotient is below 2^32: its rounded product is off by one at most.
    auto quotient = static_cast<std::uint64_t>(
        static_cast<double>(static_cast<std::int64_t>(state)) * symbol.reciprocal);
    auto rest = static_cast<std::int64_t>(state - quotient * symbol.count);
    const auto count = static_cast<std::int64_t>(symbol.count);
    quotient -= rest < 0 ? 1 : 0;
    quotient += rest >= count ? 1 : 0;
    rest += (rest < 0 ? count : 0) - (rest >= count ? count : 0);
    state = quotient * total_ + symbol.below + static_cast<std::uint64_t>(rest);
  }
  for (; state > 0; state >>= 8) emit(static_cast<std::uint8_t>(state));
}

std::int64_t SymbolCoder::encoded_bytes(std::span<const std::int32_t> symbols) const {
  std::int64_t bytes = 0;
  each_byte(symbols, [&](std::uint8_t) { ++bytes; });
  return bytes;
}

void SymbolCoder::encode(std::span<const std::int32_t> symbols, BitWriter& writer) const {
  std::vector<std::uint8_t> bytes;
  each_byte(symbols, [&](std::uint8_t byte) { bytes.push_back(byte); });
  std::for_each(bytes.rbegin(), bytes.rend(), [&](std::uint8_t byte) { writer.append(byte); });
}

std::vector<std::int32_t> SymbolCoder::decode(BitReader& reader) const {
  std::vector<std::int32_t> symbols(total_);
  std::vector<std::uint64_t> found(symbols_.size(), 0);
  std::uint64_t state = 0;
  for (std::int32_t& decoded : symbols) {
    while (state < total_ << kLow && reader.left() > 0) {
      state = state << 8 | reader.take<std::uint8_t>();
      if (state == 0) reader.fail("the code of the indices starts with 0");
    }
    const std::uint64_t place = state % total_;
    const std::size_t s = symbol_at(place);
    state = state / total_ * symbols_[s].count + place - symbols_[s].below;
    decoded = static_cast<std::int32_t>(s);
    ++found[s];
  }
  for (std::size_t s = 0; s < found.size(); ++s) {
    if (found[s] != symbols_[s].count) {
      reader.fail(concat("index ", s, " is there ", found[s], " times, not ", symbols_[s].count));
    }
  }
  if (state != 0) reader.fail("the code of the indices does not end where it should");
  return symbols;
}

std::size_t SymbolCoder::symbol_at(std::uint64_t place) const {
  const auto above =
      std::upper_bound(symbols_.begin(), symbols_.end(), place,
                       [](std::uint64_t at, const Symbol& symbol) { return at < symbol.below; });
  return static_cast<std::size_t>(above - symbols_.begin()) - 1;
}

}  // namespace fedhpc
