#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/core/registry.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// The size of one layer's factors: a rank, or full size over compressed size.
struct Rank {
  std::int64_t value = 1;
};
struct CompressionRate {
  double value = 1;
};
using FactorSize = std::variant<Rank, CompressionRate>;

/// The weights of one layer to be factorised.
struct WeightShape {
  std::vector<std::int64_t> sizes;  ///< PyTorch's: {out, in} or {out, in, height, width}, or others
  std::int64_t fan_in = 1;          ///< inputs of one output unit

  std::int64_t count() const;  ///< p, numbers in full
  /// The same numbers as a matrix or as kernels of two dimensions: of one dimension they have a
  /// height of 1; of three and more all but the last are the height.
  WeightShape in_two_dimensions() const;
};

/// The way a kernel [out, in, height, width] becomes the matrix [out height, in width] that is
/// factorised.
enum class ConvView {
  Raw,      ///< the same numbers in the same order
  Permuted  ///< entry ((o, y), (i, x)) is kernel [o, i, y, x]
};

/// The places of the blocks of a block-wise Kronecker decomposition.
enum class BlockLayout {
  Stacked,  ///< one below the other; any number of them
  Grid      ///< k by k
};

/// The least rank that may follow from a compression.
enum class RankBound {
  None,  ///< 1: the largest rank within the compression
  Full   ///< the rank that leaves full rank possible, at any compression; rounded up
};

/// What is known of a factorisation beside its name and size.
struct FactorForm {
  ConvView view = ConvView::Permuted;
  BlockLayout blocks = BlockLayout::Stacked;
  RankBound bound = RankBound::None;
  std::optional<double> lora_alpha{};     ///< of adapters alpha; unset: the rank
  Summation summation = Summation::Fast;  ///< of products on a device
};

/// One factor of a layer.
struct FactorShape {
  std::string name;                 ///< "A1"
  std::vector<std::int64_t> sizes;  ///< {rows, rank}
  bool zero_for_zero = false;       ///< true: the weights are 0 where it and its like are
  std::int64_t fan_in = 0;  ///< inputs of one of its outputs, where it is drawn like a layer

  std::int64_t count() const;
};

/// The weights of one layer as a function of fewer numbers, its factors one after the other. It
/// maps stacked rows u [C, q] to weights w [C, p], and has the adjoint. Rows of a tensor may lie
/// apart; the numbers of a row lie side by side. Keeps buffers between calls.
class Factorisation {
 public:
  virtual ~Factorisation() = default;

  virtual const std::vector<FactorShape>& factors() const = 0;
  std::int64_t count() const;  ///< q

  /// The weights depend on these beside the factors: matrices that all clients share and nobody
  /// trains. By default none.
  virtual const std::vector<FactorShape>& constants() const;
  /// Sets their numbers, one after the other, in the type of the rows that follow.
  virtual void set_constants(const Tensor& values);

  /// w[c] <- the weights that u[c] stands for.
  virtual void expand_(const Tensor& u, const Tensor& w) = 0;
  /// du[c] <- the derivative of expand at u[c], transposed, times dw[c]: it turns a gradient of the
  /// weights, dw, into that of the factors.
  virtual void pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) = 0;
  /// du[c] <- the gradient of scale/2 ||w[c] - expand(u[c])||^2 with respect to the factors, taken
  /// from the residual. Where the factors fit, only rounding errors of the residual's own size are
  /// left of it.
  virtual void distance_gradient_(const Tensor& u, const Tensor& w, double scale,
                                  const Tensor& du) = 0;
  /// Returns the factors near `start` [q] whose weights come close to w [p] in the sense of least
  /// squares; float64 inside. `sweeps` are those of an iterative method.
  virtual Tensor fit(const Tensor& w, const Tensor& start, std::int64_t sweeps) = 0;
  /// The deviation sigma of independent normal factors that gives weights the variance 2 / fan_in;
  /// 0 where constants determine it.
  virtual double initial_deviation() const = 0;
  /// Returns the weights w [p] as the matrix whose rank matters. By default it has one row for each
  /// output.
  virtual Tensor matrix_of(const Tensor& w, const WeightShape& shape) const;
};

/// Every factorisation: model.factorisation.
using MakeFactorisation = std::unique_ptr<Factorisation>(const WeightShape& shape,
                                                         const FactorSize& size,
                                                         const FactorForm& form);
Registry<MakeFactorisation>& factorisation_registry();

/// Makes the factorisation `name` of the registry for one layer.
std::unique_ptr<Factorisation> make_factorisation(const std::string& name, const WeightShape& shape,
                                                  const FactorSize& size,
                                                  const FactorForm& form = {});

}  // namespace fedhpc
