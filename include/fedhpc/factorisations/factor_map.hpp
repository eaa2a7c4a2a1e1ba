#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/factorisations/options.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Whole models as functions of fewer numbers: rows of factors [C, Q] to rows of weights [C, P],
/// and back. The factors of a factorised layer stand in the place of its weights, named
/// <layer>.<factor>; all other columns (biases, batch norm, layers left full) pass through.
class FactorMap {
 public:
  /// For models of this layout. Throws ConfigError for ranks or layer names that do not fit it.
  FactorMap(const FactorisationOptions& options, LayoutPtr full);

  const LayoutPtr& full() const { return full_; }        ///< P columns
  const LayoutPtr& factors() const { return factors_; }  ///< Q columns

  /// A row [1, Q]: factors of independent normals that give weights the variance 2 / fan_in, drawn
  /// in float64 with key (seed, Purpose::Factors, client = index of the field in the row); what
  /// passes through is taken from `model` [1, P].
  Rows initial(const Rows& model, std::uint64_t seed) const;

  /// w <- the models that u stands for.
  void expand_(const Rows& u,   // [C, Q]
               const Rows& w);  // [C, P]
  Rows expand(const Rows& u);   // [C, Q] -> [C, P]
  /// du <- the gradients with respect to the factors where dw are those with respect to the
  /// weights.
  void pullback_(const Rows& u,    // [C, Q]
                 const Rows& dw,   // [C, P]
                 const Rows& du);  // [C, Q]

  /// du <- the gradients with respect to u of scale/2 ||w - expand(u)||^2, over all columns but
  /// buffers (see Factorisation::distance_gradient_).
  void distance_gradient_(const Rows& u,  // [C, Q]
                          const Rows& w,  // [C, P]
                          double scale,
                          const Rows& du);  // [C, Q]

  /// The fields of factors(), in order, that are factors.
  std::vector<Field> factor_fields() const;
  /// Number of factorised layers.
  std::int64_t layers() const { return static_cast<std::int64_t>(layers_.size()); }
  /// The factors of factorised layer `l` near those of `start` [1, Q] that come close to the
  /// weights in `model` [1, P] (see Factorisation::fit); [q].
  Tensor fit_layer(std::int64_t l, const Rows& model, const Rows& start, std::int64_t sweeps);
  /// A row [1, Q] of these factors, one entry per factorised layer; what passes through is taken
  /// from `model` [1, P].
  Rows assemble(const std::vector<Tensor>& factors, const Rows& model) const;
  /// fit_layer() of all layers for each of C clients.
  Rows fit(const Rows& models,  // [C, P]
           const Rows& start,   // [C, Q]
           std::int64_t sweeps);

  /// The passed-through columns that carry `tag` (Tag::None: all), from rows of factors to rows of
  /// weights or the other way.
  void copy_passed_(const Rows& from, const Rows& to, Tag tag) const;

 private:
  struct Layer {
    std::unique_ptr<Factorisation> factorisation;
    std::int64_t weights;  // first column in full rows
    std::int64_t weight_count;
    std::int64_t factors;  // first column in rows of factors
  };
  struct Passed {
    std::int64_t full;
    std::int64_t factors;
    std::int64_t count;
    Tag tags;
  };

  Tensor factors_of(const Layer& layer, const Tensor& rows) const;
  Tensor weights_of(const Layer& layer, const Tensor& rows) const;

  LayoutPtr full_;
  LayoutPtr factors_;
  std::vector<Layer> layers_;
  std::vector<Passed> passed_;
};

}  // namespace fedhpc
