#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/factorisations/matrix_view.hpp"

namespace fedhpc {

/// A product U * V of two factors that is a matrix [O, I], linear in each of them. Operands are
/// rows of numbers side by side, one for each of C clients or the same for all (stride 0).
class FactorProduct {
 public:
  virtual ~FactorProduct() = default;
  virtual std::vector<std::int64_t> left_sizes() const = 0;   ///< of U
  virtual std::vector<std::int64_t> right_sizes() const = 0;  ///< of V
  virtual std::string left_name() const { return "U"; }
  virtual std::string right_name() const { return "V"; }

  /// m <- U * V, or m += U * V.
  enum class Write { Replace, Add };
  virtual void multiply_(const Tensor& u,  // [C, size of U]
                         const Tensor& v,  // [C, size of V]
                         const Tensor& m,  // [C, O I]
                         Write write) = 0;
  /// Arranges dm [C, O I] for the next two calls: by default as it is.
  virtual Tensor arranged(const Tensor& dm) const { return dm; }
  /// du <- the derivative of U * V with respect to U, transposed, times dm; dv likewise.
  virtual void pull_left_(const Tensor& dm, const Tensor& v, const Tensor& du) = 0;
  virtual void pull_right_(const Tensor& dm, const Tensor& u, const Tensor& dv) = 0;

  /// Returns U and V, one after the other, whose product is near the matrix m [O I] in float64: by
  /// singular value decompositions.
  virtual Tensor fit(const Tensor& m) const = 0;
  /// The variance of an entry of U * V over sigma^4, for independent entries of variance sigma^2.
  virtual double variance() const = 0;
};

/// The largest rank of a matrix [O, I] with `of_rank` numbers a rank for 1 / rate of its numbers,
/// rounded up, at least 1.
std::int64_t rank_within(const MatrixView& view, CompressionRate rate, std::int64_t of_rank);

/// The trained factors of a product (FedMUD, Sections 3.3 and 5.3).
enum class Trained {
  Both,      ///< W = U * V
  Right,     ///< +F: W = U~ * V with U~ frozen
  Decoupled  ///< +AAD, equation (8): W = U * V~ + U~ * V with U~ and V~ frozen. It is linear in the
             ///< trained factors, so that the mean of the products is the product of the means (9)
};

/// The weights of a layer as such a product.
class ProductFactorisation : public Factorisation {
 public:
  ProductFactorisation(std::unique_ptr<FactorProduct> product, Trained trained,
                       const WeightShape& shape, const MatrixView& view);

  const std::vector<FactorShape>& factors() const override { return factors_; }
  const std::vector<FactorShape>& constants() const override { return constants_; }
  void set_constants(const Tensor& values) override;
  void expand_(const Tensor& u, const Tensor& w) override;
  void pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) override;
  void distance_gradient_(const Tensor& u, const Tensor& w, double scale,
                          const Tensor& du) override;
  /// Both trained: by singular value decompositions. Else the weights are linear in the factors.
  /// Conjugate gradients on the normal equations, from `start`, then find the nearest ones.
  Tensor fit(const Tensor& w, const Tensor& start, std::int64_t sweeps) override;
  double initial_deviation() const override;
  Tensor matrix_of(const Tensor& w, const WeightShape& shape) const override;

 private:
  Tensor room_for_matrices(const Tensor& u);              // [C, O I]
  Tensor left(const Tensor& u) const;                     // [C, size of U], of the trained factors
  Tensor right(const Tensor& u) const;                    // [C, size of V]
  Tensor constant(std::size_t i, const Tensor& u) const;  // the same for each row of u

  std::unique_ptr<FactorProduct> product_;
  Trained trained_;
  WeightShape shape_;
  MatrixView view_;
  std::vector<FactorShape> factors_;
  std::vector<FactorShape> constants_;
  Tensor values_;   // [1, all constants]
  Tensor scratch_;  // [C, O I]
};

}  // namespace fedhpc
