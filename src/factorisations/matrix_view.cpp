#include "fedhpc/factorisations/matrix_view.hpp"

#include "fedhpc/core/error.hpp"

namespace fedhpc {

MatrixView::MatrixView(const WeightShape& shape, ConvView view) {
  const std::vector<std::int64_t> sizes = shape.in_two_dimensions().sizes;
  rows_ = sizes[0];
  columns_ = sizes[1];
  if (sizes.size() == 2) return;
  rows_ *= sizes[2];
  columns_ *= sizes[3];
  if (view == ConvView::Permuted) kernel_ = sizes;
}

Tensor MatrixView::matrices_of(const Tensor& w) const {
  if (is_weights()) return w;
  return w.view({w.size(0), kernel_[0], kernel_[1], kernel_[2], kernel_[3]})
      .permute({0, 1, 3, 2, 4})
      .reshape({w.size(0), rows_ * columns_});
}

void MatrixView::to_weights_(const Tensor& matrices, const Tensor& w) const {
  w.view({w.size(0), kernel_[0], kernel_[1], kernel_[2], kernel_[3]})
      .copy_(matrices.view({w.size(0), kernel_[0], kernel_[2], kernel_[1], kernel_[3]})
                 .permute({0, 1, 3, 2, 4}));
}

}  // namespace fedhpc
