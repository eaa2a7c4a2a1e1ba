// All clients' tensors at a time.

#include <ATen/ops/empty.h>

#include "fedhpc/factorisations/cp.hpp"

namespace fedhpc {

Tensor Cp::factor_in(const Tensor& u, std::size_t dimension) const {
  return u.narrow(1, column(dimension), size(dimension) * rank_)
      .unflatten(1, {size(dimension), rank_});
}

std::vector<Tensor> Cp::products_on_device(const Group& group, const Tensor& u) const {
  std::vector<Tensor> products{factor_in(u, group.dimensions.front())};
  for (std::size_t k = 1; k < group.dimensions.size(); ++k) {
    const Tensor factor = factor_in(u, group.dimensions[k]);
    products.push_back(products.back().unsqueeze(2).mul(factor.unsqueeze(1)).flatten(1, 2));
  }
  return products;
}

void Cp::expand_on_device(const Tensor& u, const Tensor& w) const {
  const Tensor k = products_on_device(left_, u).back();
  const Tensor l = products_on_device(right_, u).back();
  batched_product(u.scalar_type(), u.size(0), 1, matrices_of(k), Transpose::No, matrices_of(l),
                  Transpose::Yes, 0, matrices_in(w, 0, length(left_), length(right_)));
}

void Cp::pull_on_device(const Tensor& u, const Tensor& e, const Tensor& du) const {
  const std::vector<Tensor> k = products_on_device(left_, u);
  const std::vector<Tensor> l = products_on_device(right_, u);
  const MatrixStack unfolded = matrices_in(e, 0, length(left_), length(right_));
  const Tensor of_left = at::empty({u.size(0), length(left_), rank_}, u.options());
  const Tensor of_right = at::empty({u.size(0), length(right_), rank_}, u.options());
  batched_product(u.scalar_type(), u.size(0), 1, unfolded, Transpose::No, matrices_of(l.back()),
                  Transpose::No, 0, matrices_of(of_left));
  batched_product(u.scalar_type(), u.size(0), 1, unfolded, Transpose::Yes, matrices_of(k.back()),
                  Transpose::No, 0, matrices_of(of_right));
  contract_on_device(left_, k, u, of_left, du);
  contract_on_device(right_, l, u, of_right, du);
}

void Cp::contract_on_device(const Group& group, const std::vector<Tensor>& products,
                            const Tensor& u, Tensor g, const Tensor& du) const {
  // As contract() does it.
  for (std::size_t k = group.dimensions.size(); k-- > 1;) {
    const std::size_t dimension = group.dimensions[k];
    g = g.unflatten(1, {-1, size(dimension)});  // [C, prefix, I, R]
    factor_in(du, dimension).copy_(products[k - 1].unsqueeze(2).mul(g).sum(1));
    g = factor_in(u, dimension).unsqueeze(1).mul(g).sum(2);
  }
  factor_in(du, group.dimensions.front()).copy_(g);
}

}  // namespace fedhpc
