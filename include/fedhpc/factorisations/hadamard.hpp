#pragma once

#include <array>
#include <optional>

#include "fedhpc/factorisations/low_rank.hpp"

namespace fedhpc {

/// Elementwise product of two low-rank tensors, of rank up to r^2 (N. Hyeon-Woo, M. Ye-Bin, T.-H.
/// Oh: "FedPara: Low-Rank Hadamard Product for Communication-Efficient Federated Learning", ICLR
/// 2022):
///
///   linear layer   W = (X1 Y1^T) o (X2 Y2^T)
///   kernels        W = W1 o W2, Wj = Tj x_1 Xj x_2 Yj
///
/// X [out, r], Y [in, r], T [r, r, height, width].
class Hadamard final : public Factorisation {
 public:
  Hadamard(const WeightShape& shape, std::int64_t rank, const FactorForm& form);

  /// r for 1 / rate of the layer's numbers, rounded down, at least 1. RankBound::Full rounds up and
  /// makes r^2 at least both sides: full rank stays possible, and high rates are missed.
  static std::int64_t rank_of(const WeightShape& shape, CompressionRate rate,
                              const FactorForm& form = {});

  const std::vector<FactorShape>& factors() const override { return factors_; }
  void expand_(const Tensor& u, const Tensor& w) override;
  void pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) override;
  void distance_gradient_(const Tensor& u, const Tensor& w, double scale,
                          const Tensor& du) override;
  /// Alternating least squares over the factors, from `start`.
  Tensor fit(const Tensor& w, const Tensor& start, std::int64_t sweeps) override;
  double initial_deviation() const override;

 private:
  bool of_kernels() const { return shape_.sizes.size() == 4; }
  /// The parts of one of the two tensors, in rows u or du.
  struct Half {
    Tensor core;  // [C, r r height width], undefined for a linear layer
    Tensor x;     // [C, out r]
    Tensor y;     // [C, in r]
  };
  Half half(const Tensor& u, std::size_t j) const;
  void reserve(const Tensor& u);
  /// between_ <- X T of client c.
  void multiply_core(const Half& half, std::int64_t c);
  /// w <- Wj of every client.
  void compose_(const Half& half, const Tensor& w);
  /// gradient <- the gradients of the factors of Wj, from that of Wj, dw.
  void pull_(const Half& half, const Tensor& dw, const Half& gradient);

  /// On a device, all clients at once: Wj is X times the product of T and Y.
  struct CoreProduct;
  CoreProduct core_product(const Half& half) const;
  void compose_on_device_(const Half& half, const CoreProduct& product, const Tensor& w);
  void pull_on_device_(const Half& half, const CoreProduct& product, const Tensor& dw,
                       const Half& gradient);
  void expand_on_device_(const Tensor& u, const Tensor& w);
  void pullback_on_device_(const Tensor& u, const Tensor& dw, const Tensor& du);

  WeightShape shape_;
  std::int64_t rank_;
  Arithmetic arithmetic_;
  std::int64_t window_;                   // height width
  std::optional<LowRankProduct> matrix_;  // X Y^T of a linear layer
  std::vector<FactorShape> factors_;
  std::array<Tensor, 2> composed_;  // [C, p]  W1, W2
  Tensor gradient_;                 // [C, p]
  Tensor between_;                  // [out, r height width]  X T of one client
  Tensor between_gradient_;
};

}  // namespace fedhpc
