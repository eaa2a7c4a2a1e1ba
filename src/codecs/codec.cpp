#include "fedhpc/codecs/codec.hpp"

#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

void check(const Tensor& values, std::int64_t dimensions) {
  require(values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble,
          "a payload is float32 or float64");
  require(values.dim() == dimensions, "a payload is [n], payloads are [C, n]");
  require(values.size(-1) <= 1 || values.stride(-1) == 1, "a payload's numbers lie side by side");
}

/// Row c of [C, n], or all of [n]. T may be const.
template <typename T>
std::span<T> row_of(const Tensor& values, std::int64_t c = 0) {
  auto* data = values.data_ptr<std::remove_const_t<T>>();
  const std::int64_t start = values.dim() == 2 ? c * values.stride(0) : 0;
  return {data + start, static_cast<std::size_t>(values.size(-1))};
}

}  // namespace

std::vector<std::int64_t> Codec::encoded_bytes(const Tensor& rows) const {
  check(rows, 2);
  const auto of_row = rows.size(1) * static_cast<std::int64_t>(rows.itemsize());
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(rows.size(0)), of_row);
  if (linear(rows.scalar_type())) return bytes;
  const Tensor here = on_host(rows);
  with_type(rows.scalar_type(), [&]<typename T>() {
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      bytes[c] = row_bytes(row_of<const T>(here, static_cast<std::int64_t>(c)));
    }
  });
  return bytes;
}

std::vector<std::int64_t> Codec::transmit_(const Tensor& rows) const {
  if (lossless(rows.scalar_type())) return encoded_bytes(rows);
  check(rows, 2);
  const HostEdit here(rows);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(rows.size(0)));
  with_type(rows.scalar_type(), [&]<typename T>() {
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      bytes[c] = transmit_row_(row_of<T>(here.values(), static_cast<std::int64_t>(c)));
    }
  });
  return bytes;
}

std::vector<std::byte> Codec::encode(const Tensor& row) const {
  check(row, 1);
  require(row.is_cpu(), "a row to be encoded is in host memory");
  return with_type(row.scalar_type(),
                   [&]<typename T>() { return encode_row(row_of<const T>(row)); });
}

void Codec::decode(std::span<const std::byte> bytes, const Tensor& row) const {
  check(row, 1);
  require(row.is_cpu(), "a row to be decoded is in host memory");
  with_type(row.scalar_type(), [&]<typename T>() { decode_row(bytes, row_of<T>(row)); });
}

}  // namespace fedhpc
