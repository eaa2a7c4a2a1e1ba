#pragma once

#include "fedhpc/factorisations/product_factorisation.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

/// Block-wise Kronecker product (FedMUD, Section 3.2): R blocks U_b (x) V_b of square matrices U_b,
/// V_b [z, z], each [z^2, z^2]. The paper has them k by k in a matrix [k z^2, k z^2], R = k^2; its
/// public code has them one below the other. The first O I numbers of that, row by row, are the
/// matrix. U [R, z, z], V [R, z, z].
class KroneckerProduct final : public FactorProduct {
 public:
  /// z is the least with R z^4 >= O I. Throws ConfigError for a grid of no square number of blocks.
  KroneckerProduct(const MatrixView& view, std::int64_t blocks, const FactorForm& form);

  /// R for 1 / rate of the layer's numbers, rounded up, at least 1; for a grid sqrt(R) is. The
  /// paper's compression ratio is 2 sqrt(R) / sqrt(O I), half of it where U is frozen.
  static std::int64_t rank_of(const MatrixView& view, CompressionRate rate, Trained trained,
                              BlockLayout layout);

  std::int64_t side() const { return side_; }  ///< z
  std::vector<std::int64_t> left_sizes() const override { return {blocks_, side_, side_}; }
  std::vector<std::int64_t> right_sizes() const override { return {blocks_, side_, side_}; }
  void multiply_(const Tensor& u, const Tensor& v, const Tensor& m, Write write) override;
  /// On a device: entry ((i, j), (k, l)) of every block, [C, R z^2 z^2]; numbers beyond O I are 0.
  Tensor arranged(const Tensor& dm) const override;
  void pull_left_(const Tensor& dm, const Tensor& v, const Tensor& du) override;
  void pull_right_(const Tensor& dm, const Tensor& u, const Tensor& dv) override;
  /// Takes the nearest Kronecker product block by block (Van Loan and Pitsianis 1993): the first
  /// singular vectors of the block with its entries rearranged. Numbers beyond O I count as 0.
  Tensor fit(const Tensor& m) const override;
  double variance() const override { return 1; }

 private:
  /// Calls work(b, i, k, offset, count) for row (i, k) of every block: its `count` numbers that
  /// belong to the matrix, from number `offset` on.
  template <typename Work>
  void each_row(const Work& work) const;
  /// Calls work(f, g, offset, length) for every number f of U: numbers offset, offset + 1, ... of
  /// the matrix are it times numbers g, g + 1, ... of V.
  template <typename Work>
  void each_part(const Work& work) const;

  /// The numbers of all blocks, which may be more than O I.
  std::int64_t all_numbers() const { return blocks_ * side_ * side_ * side_ * side_; }
  /// Arranges those numbers by block (p, q) of the grid and its entry ((i, k), (j, l)):
  /// [C, p, i, k, q, j, l].
  Tensor by_block(const Tensor& numbers) const;
  void multiply_on_device_(const Tensor& u, const Tensor& v, const Tensor& m, Write write) const;
  /// out <- every block as it is arranged, or its transpose, times the other factor's numbers.
  void pull_on_device_(const Tensor& arranged, Transpose transpose, const Tensor& other,
                       const Tensor& out) const;

  std::int64_t numbers_;  // O I
  std::int64_t blocks_;   // R
  std::int64_t side_;     // z
  std::int64_t in_row_;   // blocks beside each other
  Arithmetic arithmetic_;
};

/// Block-wise Kronecker decomposition of a layer.
template <Trained trained>
class KroneckerOf final : public ProductFactorisation {
 public:
  KroneckerOf(const WeightShape& shape, std::int64_t blocks, const FactorForm& form)
      : ProductFactorisation(
            std::make_unique<KroneckerProduct>(MatrixView(shape, form.view), blocks, form), trained,
            shape, MatrixView(shape, form.view)) {}

  static std::int64_t rank_of(const WeightShape& shape, CompressionRate rate,
                              const FactorForm& form) {
    return KroneckerProduct::rank_of(MatrixView(shape, form.view), rate, trained, form.blocks);
  }
};

using Kronecker = KroneckerOf<Trained::Both>;
using KroneckerF = KroneckerOf<Trained::Right>;
using KroneckerAad = KroneckerOf<Trained::Decoupled>;

}  // namespace fedhpc
