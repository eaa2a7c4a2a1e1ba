#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/named_tensor.hpp"
#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/factorisations/options.hpp"
#include "fedhpc/factorisations/row_map.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// The way factors and constants are drawn.
struct FactorDraw {
  std::optional<double> range;  ///< uniform in (-range, range); unset: independent normals that
                                ///< give weights the variance 2 / fan_in
  bool like_layers = false;     ///< each factor as if it were a layer (FactorShape::fan_in):
                                ///< (-range, range) / sqrt(fan_in), normals of variance 2 / fan_in
  bool zero = false;            ///< true: factors that make the weights 0 are 0 (see zero_for_zero)
  std::uint64_t round = 0;      ///< rounds done before
  bool always = false;          ///< true: factors of model.init_file do not take their place
  bool to_be_fitted = false;    ///< true: the method fits them to the first weights
};

/// Maps rows of factors [C, Q] to whole models, rows of weights [C, P], and back. The factors of a
/// factorised layer stand in the place of its weights, named LAYER.FACTOR. The other columns
/// (biases, batch norm, layers left full) pass through, or only options.passed of them: the models
/// are then 0 in those left out.
class FactorMap final : public RowMap {
 public:
  /// For models of this layout. Throws ConfigError for ranks or layer names that do not fit it.
  FactorMap(const FactorisationOptions& options, LayoutPtr full,
            Summation summation = Summation::Fast);

  const LayoutPtr& full() const override { return full_; }
  const LayoutPtr& factors() const override { return factors_; }

  /// Draws a row [1, Q] of factors; columns that pass through come from `model` [1, P]. Draws
  /// float64 with key (seed, Purpose::Factors). Normals have client = index of the field in the
  /// row, whatever the round. Uniform numbers have round = draw.round and client = index of the
  /// layer's weights in the full row. Their pass is the factor's place among the layer's constants
  /// and factors.
  Rows initial(const Rows& model, std::uint64_t seed, const FactorDraw& draw = {}) const;

  /// Draws the constants of every layer, uniform in (-draw.range, draw.range), as initial() does.
  /// `options` gives their type and device, which must be those of the rows.
  void draw_constants(std::uint64_t seed, const FactorDraw& draw, const at::TensorOptions& options);
  /// Makes the constants identity matrices [rows, columns]: 1 where row and column are the same.
  void set_constants_to_identity(const at::TensorOptions& options);
  /// What initial() with draw.zero and draw_constants() draw, layer by layer, named
  /// LAYER.NAME, with their shapes, from `factors` [1, Q].
  std::vector<NamedTensor> drawn(const Rows& factors) const;

  void expand_(const Rows& u, const Rows& w) override;
  void pullback_(const Rows& u, const Rows& dw, const Rows& du) override;

  /// du <- the gradients with respect to u of scale/2 ||w - expand(u)||^2, over all columns (see
  /// Factorisation::distance_gradient_).
  void distance_gradient_(const Rows& u,  // [C, Q]
                          const Rows& w,  // [C, P]
                          double scale,
                          const Rows& du);  // [C, Q]

  /// The fields of factors(), in order, that are factors.
  std::vector<Field> factor_fields() const;
  /// The number of factorised layers.
  std::int64_t layers() const { return static_cast<std::int64_t>(layers_.size()); }
  const std::string& layer_name(std::int64_t l) const { return layers_[l].name; }
  /// The number of factors that stand for the weights of factorised layer `l`.
  std::int64_t factors_of_layer(std::int64_t l) const { return layers_[l].factorisation->count(); }
  ColumnRanges other_columns() const override;  ///< factorised weights and those left out
  /// ||w||^2 of the factorised weights w of `model` [1, P], summed in float64.
  double squared_length(const Rows& model) const;
  /// The numbers of weights and of factors of all factorised layers.
  std::int64_t weight_count() const;
  std::int64_t factor_count() const;
  /// The weights of factorised layer `l` in `model` [1, P] as the matrix that is factorised.
  Tensor matrix_of_layer(std::int64_t l, const Rows& model) const;
  /// Fits the factors [q] of factorised layer `l`, near those of `start` [1, Q], to the weights in
  /// `model` [1, P] (see Factorisation::fit).
  Tensor fit_layer(std::int64_t l, const Rows& model, const Rows& start, std::int64_t sweeps);
  /// Joins these factors, one entry per factorised layer, into a row [1, Q]; columns that pass
  /// through come from `model` [1, P].
  Rows assemble(const std::vector<Tensor>& factors, const Rows& model) const;
  /// Runs fit_layer() on all layers for each of C clients.
  Rows fit(const Rows& models,  // [C, P]
           const Rows& start,   // [C, Q]
           std::int64_t sweeps);

  void copy_passed_(const Rows& from, const Rows& to, Tag tag) const override;

 private:
  struct Layer {
    std::string name;  // "conv2"
    WeightShape shape;
    std::uint64_t field;  // index of the weights in the full row
    std::unique_ptr<Factorisation> factorisation;
    Tensor constants{};    // as they are set; undefined before
    std::int64_t weights;  // first column in full rows
    std::int64_t weight_count;
    std::int64_t factors;  // first column in rows of factors
  };
  struct CopiedColumns {
    std::int64_t full = 0;
    std::int64_t factors = 0;
    std::int64_t count = 0;
    Tag tags = Tag::None;
  };

  void set_constants(Layer& layer, const std::vector<Tensor>& values,
                     const at::TensorOptions& options);
  /// Draws uniform numbers for the constant or factor in this place of a layer; float64.
  Tensor uniform(const Layer& layer, std::size_t place, const FactorShape& shape,
                 std::uint64_t seed, const FactorDraw& draw) const;
  Tensor normals(const Layer& layer, std::size_t factor, std::uint64_t seed,
                 const FactorDraw& draw) const;
  Tensor factors_of(const Layer& layer, const Tensor& rows) const;
  Tensor weights_of(const Layer& layer, const Tensor& rows) const;

  LayoutPtr full_;
  LayoutPtr factors_;
  std::vector<Layer> layers_;
  std::vector<CopiedColumns> passed_;
  ColumnRanges left_out_;  // of full rows
};

}  // namespace fedhpc
