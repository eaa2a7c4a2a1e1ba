#include "training/row_memory.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

namespace {

constexpr std::int64_t kLine = 32;  // values; 128 bytes of float32

}  // namespace

Tensor rows_in_whole_lines(std::int64_t count, std::int64_t columns,
                           const at::TensorOptions& options) {
  const std::int64_t stride = (columns + kLine - 1) / kLine * kLine;
  return at::empty({count, stride}, options).narrow(1, 0, columns);
}

std::int64_t stride_beside(const Tensor& rows) {
  const std::int64_t gap = rows.stride(0) - rows.size(1);
  return 0 <= gap && gap < kLine ? rows.stride(0) : rows.size(1);
}

}  // namespace fedhpc
