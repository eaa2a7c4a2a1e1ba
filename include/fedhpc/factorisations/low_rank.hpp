#pragma once

#include "fedhpc/factorisations/product_factorisation.hpp"

namespace fedhpc {

/// U V^T of rank r: U [O, r], V [I, r].
class LowRankProduct final : public FactorProduct {
 public:
  LowRankProduct(const MatrixView& view, std::int64_t rank, Summation summation);

  /// r for 1 / rate of the layer's numbers, rounded up, at least 1. The layer has O I numbers, the
  /// factors r (O + I), or r I where U is frozen.
  static std::int64_t rank_of(const MatrixView& view, CompressionRate rate, Trained trained);

  std::vector<std::int64_t> left_sizes() const override { return {view_.rows(), rank_}; }
  std::vector<std::int64_t> right_sizes() const override { return {view_.columns(), rank_}; }
  void multiply_(const Tensor& u, const Tensor& v, const Tensor& m, Write write) override;
  void pull_left_(const Tensor& dm, const Tensor& v, const Tensor& du) override;
  void pull_right_(const Tensor& dm, const Tensor& u, const Tensor& dv) override;
  Tensor fit(const Tensor& m) const override;  ///< the truncated singular value decomposition
  double variance() const override { return static_cast<double>(rank_); }

 private:
  MatrixView view_;
  std::int64_t rank_;
  Arithmetic arithmetic_;
};

/// Low-rank decomposition of a layer (FedMUD, Section 3.1; FedHM; FedLMT).
template <Trained trained>
class LowRankOf final : public ProductFactorisation {
 public:
  LowRankOf(const WeightShape& shape, std::int64_t rank, const FactorForm& form)
      : ProductFactorisation(
            std::make_unique<LowRankProduct>(MatrixView(shape, form.view), rank, form.summation),
            trained, shape, MatrixView(shape, form.view)) {}

  static std::int64_t rank_of(const WeightShape& shape, CompressionRate rate,
                              const FactorForm& form) {
    return LowRankProduct::rank_of(MatrixView(shape, form.view), rate, trained);
  }
};

using LowRank = LowRankOf<Trained::Both>;
using LowRankF = LowRankOf<Trained::Right>;
using LowRankAad = LowRankOf<Trained::Decoupled>;

}  // namespace fedhpc
