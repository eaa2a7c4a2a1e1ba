#pragma once

#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

/// Canonical polyadic decomposition (CANDECOMP/PARAFAC) of a weight tensor of order N >= 2:
///
///   w = [[A1, ..., AN]] = sum over r of a_r^(1) o ... o a_r^(N),   A^(n) [I_n, R]
///
/// (TDPFed, Section IV-B). Mode n is PyTorch's n-th dimension from the end. Of a matrix [out, in]
/// A1 is [in, R] and A2 [out, R]. Kernels [out, in, height, width] have the order
/// (width, height, in, out), as in the paper.
///
/// The dimensions are split into two groups whose Khatri-Rao products K and L turn w into a matrix
/// K L^T. All modes' products with an unfolded tensor E (MTTKRP) then share two matrix products,
/// E L and E^T K.
class Cp final : public Factorisation {
 public:
  Cp(WeightShape shape, std::int64_t rank, const FactorForm& form);

  /// R by equations (21) and (22): prod I_n / (rate x sum I_n), rounded, at least 1.
  static std::int64_t rank_of(const WeightShape& shape, CompressionRate rate);

  std::int64_t rank() const { return rank_; }
  const std::vector<FactorShape>& factors() const override { return factors_; }
  void expand_(const Tensor& u, const Tensor& w) override;
  void pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) override;
  /// Equation (23) of TDPFed: scale times the products (MTTKRP) of [[A]] - w with the factors.
  void distance_gradient_(const Tensor& u, const Tensor& w, double scale,
                          const Tensor& du) override;
  /// Order 2: the truncated singular value decomposition w^T = U S V^T, A1 = U sqrt(S), A2 = V
  /// sqrt(S), which is optimal. Above: alternating least squares from `start`, every mode once in a
  /// sweep; the error never grows.
  Tensor fit(const Tensor& w, const Tensor& start, std::int64_t sweeps) override;
  double initial_deviation() const override;

 private:
  /// Dimensions side by side, in PyTorch's order, and the Khatri-Rao products of their first 1, 2,
  /// ... factors: [I_1, R], [I_1 I_2, R], ..., the first of which is the factor itself.
  struct Group {
    std::vector<std::size_t> dimensions;
    std::vector<Tensor> products;
    Tensor gradient;  // [prod I, R]: the unfolded tensor times the other group's product
  };

  std::int64_t size(std::size_t dimension) const { return shape_.sizes[dimension]; }
  std::int64_t length(const Group& group) const;  ///< product of its sizes
  /// The columns of u at which the factor of a dimension begins.
  std::int64_t column(std::size_t dimension) const { return columns_[dimension]; }
  void reserve(at::ScalarType type);
  template <typename T>
  const T* khatri_rao(Group& group, const T* u);
  /// The number of columns of K L^T that are worked on together.
  std::int64_t tile_width() const;
  template <typename Work>
  void each_tile(const Work& work) const;
  /// w <- K L^T of one client, for some rows of L.
  template <typename T>
  void compose(const T* k, const T* l, std::int64_t columns, T* w, std::int64_t stride) const;
  /// Returns the memory of the unfolded tensor times the other group's product.
  template <typename T>
  T* product_of(Group& group, T* du);
  /// E L and E^T K of one client for columns [first, first + E.columns) of E; the first adds up.
  template <typename T>
  void multiply(const MatrixStack& e, const T* k, const T* l, std::int64_t first, T* du);
  template <typename T>
  void contract_all(const T* u, T* du);
  template <typename T>
  void contract(Group& group, const T* u, T* du);

  /// On a device, all clients at once. Khatri-Rao products of the first 1, 2, ... factors of a
  /// group: [C, I_1, R], [C, I_1 I_2, R], ...
  std::vector<Tensor> khatri_rao_on_device(const Group& group, const Tensor& u) const;
  /// Views the factor of a dimension in rows u or du, [C, I, R].
  Tensor factor_in(const Tensor& rows, std::size_t dimension) const;
  /// Computes the gradients from the groups' products: multiply(own, other, transpose, gradient) takes
  /// the unfolded tensor, transposed or not, times the other group's product.
  template <typename Multiply>
  void pull_on_device_(const std::vector<Tensor>& left, const std::vector<Tensor>& right,
                       const Tensor& u, const Tensor& du, const Multiply& multiply) const;
  void contract_on_device_(const Group& group, const std::vector<Tensor>& products,
                           const Tensor& gradient, const Tensor& u, const Tensor& du) const;
  /// w = [[A]], from the products of both groups.
  void compose_on_device_(const Tensor& left, const Tensor& right, const Tensor& w) const;
  void expand_on_device_(const Tensor& u, const Tensor& w) const;
  void pullback_on_device_(const Tensor& u, const Tensor& dw, const Tensor& du) const;
  void distance_gradient_on_device_(const Tensor& u, const Tensor& w, double scale,
                                    const Tensor& du) const;

  Tensor fit_matrix(const Tensor& w) const;
  void least_squares_(Tensor& u, const Tensor& w, std::size_t dimension);

  WeightShape shape_;
  std::int64_t rank_;
  Arithmetic arithmetic_;
  std::vector<FactorShape> factors_;
  std::vector<std::int64_t> columns_;
  Group left_;
  Group right_;
  Tensor residual_;  // a tile of one client
};

}  // namespace fedhpc
