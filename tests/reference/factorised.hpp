#pragma once

#include <string>
#include <vector>

#include "reference/problem.hpp"

/// Weights that are functions of fewer numbers, tensor by tensor from their definitions, so that
/// autograd can follow.
namespace fedhpc::reference {

struct FactorisationSettings {
  std::string
      name;  ///< low_rank, low_rank_f, low_rank_aad, kronecker, ..., hadamard, lora, ffa_lora, cp
  std::vector<std::int64_t> ranks = {};  ///< one, or one per factorised layer; none: by compression
  double compression = 2;
  bool whole_model = false;  ///< compression is that of all trainable numbers, not of each layer
  std::vector<std::string> exclude{"first", "last"};
  bool permuted = false;     ///< kernel [o, i, ky, kx] is entry ((o, ky), (i, kx)) of its matrix
  bool grid = false;         ///< Kronecker blocks side by side, too, not only one below the other
  bool full_rank = false;    ///< hadamard: ranks of the authors' program
  bool like_layers = false;  ///< hadamard: first factors of the authors' program
  double alpha = 0;          ///< lora: alpha, 0: the rank
  Columns passed = {};       ///< of layers in full, those that are trained and travel
};

/// The rank or number of blocks of a layer that shall have the share `ratio` of its weights.
std::int64_t size_for(const FactorisationSettings& settings, const Field& weight, double ratio);

/// One factorised layer.
class FactorisedLayer {
 public:
  FactorisedLayer(const FactorisationSettings& settings, std::size_t place, const Field& weight,
                  std::int64_t size);

  std::size_t place() const { return place_; }  ///< of its weights among the model's parameters
  std::int64_t weights() const { return weight_.size; }
  std::string name() const;          ///< "fc1" of "fc1.weight"
  std::int64_t factors() const;      ///< trained tensors
  std::int64_t factor_size() const;  ///< their numbers

  /// Shapes of the constants, then of the trained factors: the order in which they are drawn.
  const std::vector<std::vector<std::int64_t>>& shapes() const { return shapes_; }
  std::size_t constants() const { return constants_; }  ///< the first so many shapes

  /// The weights, in their own shape.
  Tensor expand(const Parameters& constants, const Parameters& factors) const;
  /// These as a matrix O x I.
  Tensor matrix(const Tensor& weights) const;
  /// Factors of low_rank by a truncated SVD of the matrix: U sqrt(S) and V sqrt(S).
  Parameters fit(const Tensor& weights) const;
  /// The deviation of independent normal factors whose weights have variance 2 / fan_in, or of
  /// factor `f` by itself in the authors' program of hadamard.
  double normal_deviation(std::size_t f) const;

 private:
  Tensor product(const Tensor& u, const Tensor& v) const;
  Tensor kernel(const Tensor& matrix) const;
  Tensor hadamard(const Parameters& factors) const;
  bool is_kronecker() const;
  bool is_lora() const;

  FactorisationSettings settings_;
  std::size_t place_;
  Field weight_;
  std::int64_t size_;
  std::size_t constants_ = 0;
  std::vector<std::vector<std::int64_t>> shapes_;
};

/// U(-range, range) by the draws of factor `f` of the layer, `round` rounds being done.
Tensor uniform_factor(std::uint64_t seed, const FactorisedLayer& layer, std::size_t f,
                      std::int64_t round, double range);

/// A layer's drawn tensors.
struct DrawnFactors {
  Parameters constants;
  Parameters factors;
};
/// All of a layer's constants and factors drawn U(-range, range).
DrawnFactors uniform_factors(std::uint64_t seed, const FactorisedLayer& layer, std::int64_t round,
                             double range);

/// exp(entropy) of the singular values over their sum; 0 of a zero matrix.
double effective_rank(const Tensor& matrix);

}  // namespace fedhpc::reference
