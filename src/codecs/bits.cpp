#include "codecs/bits.hpp"

#include "fedhpc/core/error.hpp"

namespace fedhpc {

void BitWriter::write(std::uint64_t field, int width) {
  require(width >= 0 && width <= 64, "a field has 0 to 64 bits");
  require(width == 64 || field >> width == 0, "a field fits into its width");
  // In two parts where it would not fit behind the pending bits.
  if (width > 56) {
    write(field & 0xffffffffU, 32);
    field >>= 32;
    width -= 32;
  }
  pending_ |= field << num_pending_;
  num_pending_ += width;
  for (; num_pending_ >= 8; num_pending_ -= 8) {
    bytes_.push_back(static_cast<std::byte>(pending_ & 0xffU));
    pending_ >>= 8;
  }
}

void BitWriter::align() {
  if (num_pending_ > 0) write(0, 8 - num_pending_);
}

void BitWriter::append_bytes(const void* data, std::size_t size) {
  require(num_pending_ == 0, "numbers start at a whole byte");
  const std::size_t start = bytes_.size();
  bytes_.resize(start + size);
  std::memcpy(bytes_.data() + start, data, size);
}

std::vector<std::byte> BitWriter::take() {
  align();
  std::vector<std::byte> written;
  written.swap(bytes_);
  return written;
}

std::uint64_t BitReader::read(int width) {
  require(width >= 0 && width <= 64, "a field has 0 to 64 bits");
  if (width > 56) {
    const std::uint64_t low = read(32);
    return low | read(width - 32) << 32;
  }
  for (; num_pending_ < width; num_pending_ += 8) {
    if (next_ == bytes_.size()) fail("it ends too early");
    pending_ |= static_cast<std::uint64_t>(bytes_[next_++]) << num_pending_;
  }
  const std::uint64_t field = pending_ & ((std::uint64_t{1} << width) - 1);
  pending_ >>= width;
  num_pending_ -= width;
  return field;
}

void BitReader::align() {
  if (pending_ != 0) fail("the bits that fill up a byte are not all 0");
  num_pending_ = 0;
}

void BitReader::take_bytes(void* data, std::size_t size) {
  require(num_pending_ == 0, "numbers start at a whole byte");
  if (bytes_.size() - next_ < size) fail("it ends too early");
  std::memcpy(data, bytes_.data() + next_, size);
  next_ += size;
}

void BitReader::finish() const {
  require(num_pending_ == 0, "a payload ends at a whole byte");
  if (next_ != bytes_.size()) {
    fail(concat(bytes_.size() - next_, " bytes are left over"));
  }
}

void BitReader::fail(const std::string& why) const {
  throw Error(concat("codec ", codec_, ": a payload of ", bytes_.size(),
                     " bytes cannot be decoded into ", num_values_, " numbers: ", why));
}

}  // namespace fedhpc
