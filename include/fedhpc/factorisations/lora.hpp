#pragma once

#include <optional>

#include "fedhpc/factorisations/product_factorisation.hpp"

namespace fedhpc {

/// (alpha / r) B A of rank r: A [r, I], the left operand U, and B [O, r], the right one.
class LoraProduct final : public FactorProduct {
 public:
  LoraProduct(const MatrixView& view, std::int64_t rank, const FactorForm& form);

  std::vector<std::int64_t> left_sizes() const override { return {rank_, view_.columns()}; }
  std::vector<std::int64_t> right_sizes() const override { return {view_.rows(), rank_}; }
  std::string left_name() const override { return "lora_A"; }
  std::string right_name() const override { return "lora_B"; }
  void multiply_(const Tensor& a, const Tensor& b, const Tensor& m, Write write) override;
  void pull_left_(const Tensor& dm, const Tensor& b, const Tensor& da) override;
  void pull_right_(const Tensor& dm, const Tensor& a, const Tensor& db) override;
  Tensor fit(const Tensor& m) const override;  ///< the truncated singular value decomposition
  double variance() const override { return scale_ * scale_ * static_cast<double>(rank_); }

 private:
  MatrixView view_;
  std::int64_t rank_;
  double scale_;  // alpha / r
  Arithmetic arithmetic_;
};

/// Low-rank adapter of a layer (LoRA, Section 4.1). B is the factor that is 0 at first. With
/// Trained::Right A is drawn and frozen (FFA-LoRA, Section 4).
template <Trained trained>
class LoraOf final : public ProductFactorisation {
 public:
  LoraOf(const WeightShape& shape, std::int64_t rank, const FactorForm& form)
      : ProductFactorisation(
            std::make_unique<LoraProduct>(MatrixView(shape, form.view), rank, form), trained, shape,
            MatrixView(shape, form.view)) {}

  /// r for 1 / rate of the layer's O I numbers: the factors have r (O + I), or r O of B alone.
  static std::int64_t rank_of(const WeightShape& shape, CompressionRate rate,
                              const FactorForm& form) {
    const MatrixView view(shape, form.view);
    return rank_within(view, rate, view.rows() + (trained == Trained::Right ? 0 : view.columns()));
  }
};

using Lora = LoraOf<Trained::Both>;
using FfaLora = LoraOf<Trained::Right>;

}  // namespace fedhpc
