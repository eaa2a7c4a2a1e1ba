#include "fedhpc/math/row_products.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"

namespace fedhpc {

Tensor row_products_on_device(const Tensor& x, const Tensor& y, const ColumnRanges& ranges) {
  require(!y.defined() || (y.sizes() == x.sizes() && y.scalar_type() == x.scalar_type()),
          "rows to be multiplied have one shape and type");
  const std::int64_t count = x.size(0);
  std::int64_t pieces = 0;
  for (const auto& [begin, end] : ranges) pieces += DeviceRowProducts::pieces_of(end - begin);
  const at::TensorOptions sums = x.options().dtype(at::kDouble);
  const Tensor of_pieces = at::empty({y.defined() ? 2 : 1, count, pieces}, sums);
  const Tensor products = at::empty({of_pieces.size(0), count}, sums);
  std::int64_t first = 0;
  for (const auto& [begin, end] : ranges) {
    device_kernels<MathKernels>().row_products(
        {.type = real_of(x),
         .rows = count,
         .columns = end - begin,
         .x = device_columns(x, begin),
         .y = y.defined() ? device_columns(y, begin) : DeviceColumns{},
         .first_piece = first,
         .pieces = pieces,
         .sums = of_pieces.data_ptr<double>()});
    first += DeviceRowProducts::pieces_of(end - begin);
  }
  device_kernels<MathKernels>().add_pieces({.rows = products.numel(),
                                            .pieces = pieces,
                                            .of_pieces = of_pieces.const_data_ptr<double>(),
                                            .sums = products.data_ptr<double>()});
  return products;
}

Tensor row_sums_on_device(const Tensor& x) {
  const Tensor rows = x.contiguous();
  const Tensor ones = at::ones({1, rows.size(1)}, rows.options()).expand_as(rows);
  return row_products_on_device(rows, ones, {{0, rows.size(1)}})[1];
}

}  // namespace fedhpc
